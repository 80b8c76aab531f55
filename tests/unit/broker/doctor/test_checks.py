"""What the doctor finds, a check at a time, and how findings are told."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from agent.doctor import (
    check_folder,
    check_long_paths,
    check_owner,
    check_programs,
    check_trainers,
)
from agent.host.data_check import check_data
from agent.host.gpu import check_gpu
from agent.programs.settings import ProgramSettings
from agent.running_agent import Beside
from agent.service.settings import AgentSettings
from agent.service.status import Word
from agent.trainer.data.schema import SCHEMA_FILE, FeatureSchema, write_json
from broker.clock import Now
from broker.doctor.checks import check_apart, check_clock, check_lock, check_state
from broker.doctor.findings import Level, fail, ok, skip, summary, warn
from broker.pki.ca import Authority
from broker.system.trainer_settings import OwnTrainer
from coordinator.admin.checkup import check_ca

TORCH: dict[str, Any] = {"torch": "2.13.0", "cuda": "13.0", "gpus": [], "problem": ""}


class _Hanging(type(Path())):  # type: ignore[misc] # the class is the system's
    """A path on a disk that answers nothing, whatever it is asked."""

    over = threading.Event()

    def stat(self, **_: Any) -> Any:
        self.over.wait()

    exists = stat  # before Python 3.14 it asks `stat`


def test_a_disk_that_hangs_is_reported_in_time() -> None:
    try:
        (finding,) = check_state(_Hanging("/somewhere"), timeout_s=0.05)
    finally:
        _Hanging.over.set()
    assert finding.text == f"{Path('/somewhere')}: the disk has not answered in 0.05 s"


def _schema(folder: Path, digest: str) -> None:
    """Write the schema of one file of prepared data."""
    schema = FeatureSchema(
        simulated=True, task="binary", window=2, stride=1, period_s=1.0, label_rule="any",
        classes=(), class_counts={}, unlabelled_windows=0, windows=7, rows=8, hosts=("a",),
        channels={}, features={}, files={"windows.parquet": digest},
    )  # fmt: skip
    write_json(folder / SCHEMA_FILE, schema)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no such files")
def test_prepared_data_that_hangs_is_told_and_holds_nobody(tmp_path: Path) -> None:
    """Its schema may be at hand, and what it names be away."""
    os.mkfifo(tmp_path / "windows.parquet")
    _schema(tmp_path, "0" * 64)
    found = check_data(tmp_path, answer_s=0.05)
    assert found.level == "fail"
    assert found.text == f"{tmp_path}: the disk has not answered in 0.05 s"
    assert "cable or network" in found.remedy


def test_prepared_data_is_read_whole(tmp_path: Path) -> None:
    whole = b"x" * 3_000_000
    (tmp_path / "windows.parquet").write_bytes(whole)
    _schema(tmp_path, hashlib.sha256(whole).hexdigest())
    assert check_data(tmp_path).text.endswith("7 windows of 1 hosts, every file checked")
    (tmp_path / "windows.parquet").write_bytes(whole[1:])
    assert check_data(tmp_path).text.endswith("is not the file that the schema names")


@pytest.mark.parametrize("running", [False, True])
def test_a_host_that_runs_programs_alone_needs_no_data(*, running: bool) -> None:
    beside = Beside(7, Word()) if running else None
    programs = ProgramSettings(unsigned=True, sandbox="none")
    for allowed, level in ((programs, Level.OK), (ProgramSettings(), Level.WARN)):
        assert check_folder(None, beside, allowed).level is level


@pytest.mark.parametrize("certified", [False, True])
def test_a_signature_that_nothing_can_check_is_warned_of(*, certified: bool) -> None:
    settings = ProgramSettings.model_construct(signed_by=("alice",), sandbox="none")
    levels = [one.level for one in check_programs(settings, certified=certified)]
    assert levels == [Level.OK] if certified else [Level.OK, Level.WARN]


@pytest.mark.parametrize(("value", "levels"), [(1, []), (0, [Level.WARN]), (None, [Level.WARN])])
def test_a_windows_without_long_paths_is_warned_of(
    value: int | None, levels: list[Level], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages of a program lie 136 characters below the state folder."""
    winreg = Mock(OpenKey=MagicMock(), QueryValueEx=Mock(return_value=(value, 4)))
    if value is None:
        winreg.OpenKey.side_effect = FileNotFoundError
    monkeypatch.setitem(sys.modules, "winreg", winreg)
    monkeypatch.setattr(sys, "platform", "win32")
    assert [one.level for one in check_long_paths()] == levels


def test_a_coordinator_has_its_ca_checked(tmp_path: Path) -> None:
    Authority.create(tmp_path / "ca", time.time())
    assert check_ca(tmp_path / "ca").line().startswith("ok    ca ")
    missing = check_ca(tmp_path / "none").line()
    assert missing.startswith("fail  ca ")
    assert "`fleet init`" in missing
    (tmp_path / "ca" / "ca.key").chmod(0o644)
    assert ("chmod 600" in check_ca(tmp_path / "ca").line()) == (os.name == "posix")
    assert "no certificate is renewed" in check_ca(None).line()


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else"
)
def test_what_may_not_be_looked_at_is_told(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "state").mkdir(parents=True)
    (closed / "state" / "lock").write_text("1\n")
    closed.chmod(0o700)
    os.seteuid(65534)
    try:
        state = [*check_state(closed / "state")]
        lock, running = check_lock(closed / "state", "agent")
        data = check_data(closed / "data")
    finally:
        os.seteuid(0)
    assert [one.level for one in state] == ["fail"]
    assert (lock.level, running) == ("warn", False)
    assert "run this as the user that runs the agent" in lock.remedy
    assert (data.level, "Permission denied" in data.text) == ("fail", True)


def _smi(folder: Path, script: str) -> Path:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder


@pytest.mark.system
@pytest.mark.posix  # a shell script stands in for nvidia-smi
@pytest.mark.parametrize(
    ("script", "torch", "level", "said"),
    [
        ("echo NVIDIA-SMI has failed; exit 9", {}, "fail", "the driver does not work: NVIDIA-SMI"),
        ("echo RTX 9", {"cuda": None}, "warn", "RTX 9 is here, but torch 2.13.0 knows no CUDA"),
        ("echo RTX 9", {}, "fail", "RTX 9 is here, but torch for CUDA 13.0 sees no GPU"),
        ("echo RTX 9", {"problem": "out of date"}, "fail", "CUDA: out of date"),
        ("echo RTX 9", {"gpus": [{"name": "RTX 9"}]}, "ok", "RTX 9 (torch for CUDA 13.0)"),
        ("exit 0", {}, "ok", "no NVIDIA GPU is here"),
    ],
)
def test_a_broken_driver_and_a_torch_without_cuda_are_told_apart(
    script: str,
    torch: dict[str, Any],
    level: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", f"{_smi(tmp_path, script)}:{os.environ['PATH']}")
    found = check_gpu({**TORCH, **torch}, wanted=True, pci=tmp_path)
    assert (found.level, found.text[: len(said)]) == (level, said)
    assert check_gpu({**TORCH, **torch}, wanted=False).level == "ok"


def test_a_gpu_without_any_driver_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    card = tmp_path / "0000:01:00.0"
    card.mkdir()
    (card / "vendor").write_text("0x10de\n")
    (card / "class").write_text("0x020000\n")
    assert check_gpu(TORCH, wanted=True, pci=tmp_path).level == "ok"
    (card / "class").write_text("0x030000\n")
    assert "no driver" in check_gpu(TORCH, wanted=True, pci=tmp_path).text


def test_a_clock_that_woke_up_in_1970_is_told() -> None:
    """A board without a battery has the time of its epoch until NTP comes."""
    assert check_clock(Now(0.0, 0.0)).level == "fail"


@pytest.mark.words
@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ("1970-01-01T00:16:40.000Z", []),  # second 1000
        ("1970-01-01T00:17:05.000Z", []),
        ("1970-01-01T00:20:10.000Z", ["it is 3 min behind that of the coordinator, on pi"]),
        ("1970-01-01T00:10:00.000Z", ["it is 7 min ahead of that of the coordinator, on pi"]),
        ("None", []),  # a coordinator of an earlier version
    ],
)
def test_a_clock_that_is_far_from_the_coordinators_is_told(theirs: str, said: list[str]) -> None:
    found = [*check_apart(theirs, "the coordinator, on pi", 1000.0, 1010.0)]
    assert [(one.level, one.text) for one in found] == [("warn", text) for text in said]
    assert all(one.remedy.startswith("where it is wrong, set it") for one in found)


@pytest.mark.words
def test_what_was_found_is_summed_up() -> None:
    found = [ok("python", "3"), skip("session", "not tried", "ask"), warn("data", "old", "mend")]
    assert summary(found[:1]) == "All is well."
    assert summary(found[:2]) == "All is well; not looked at: session."
    assert summary([*found, warn("data", "large", "wait"), fail("gpu", "no", "mend")]) == (
        "1 problem: gpu; 2 warnings: data; not looked at: session."
    )


@pytest.mark.system
@pytest.mark.words
def test_trainers_that_start_are_one_list() -> None:
    own = {
        name: OwnTrainer(command=(sys.executable, "-c", f"raise SystemExit({code})"), schema={})
        for name, code in (("a", 0), ("b", 2), ("broken", 127))
    }
    none = {"torch": None, "xgboost": None}
    found = [one.line() for one in check_trainers(none, own)]
    assert found[0].startswith("fail  trainers     broken: ended with exit code 127: ")
    assert "mend command of [trainers.broken]" in found[0]
    how = "pip install 'training-fleet[trainers]', if this host is to train them"
    deep = "mlp, cnn, gru, lstm, transformer, transformer_ssl"
    assert found[1:] == [
        f"warn  trainers     {deep}: torch is not installed; {how}",
        f"warn  trainers     gbt: xgboost is not installed; {how}",
        "ok    trainers     a and b start",
    ]
    (alone,) = [one for one in check_trainers(none, {"a": own["a"]}) if one.level == "ok"]
    assert alone.text == "a starts"


def test_how_a_host_knows_of_its_owner_is_told_in_words() -> None:
    seen, load = "the owner's use is seen by", (["load"], ["keyboard and mouse"])
    found = check_owner(AgentSettings(host="pi"), (["keyboard and mouse (logind)", "load"], []))
    assert found.text == f"{seen} keyboard and mouse (logind) and load"
    found = check_owner(AgentSettings(host="pi"), load)
    words = f"{seen} load; keyboard and mouse cannot be read here"
    assert (found.level, found.text) == ("ok", words)
    assert check_owner(AgentSettings(host="pi", idle_only=True), load).level == "warn"
