"""`fleet get` against a real broker, with a small coordinator that sends the artifact."""

from __future__ import annotations

import hashlib
import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.link_events import Outgoing
from broker.protocol.messages import Stored
from broker.protocol.topics import Topics
from coordinator.cli import main
from tests.harness.peer import DEADLINE_S
from tests.unit.broker.system.test_archive import archive, entry

CHUNK_BYTES = 64 * 1024


class Shop:
    """A coordinator's side of a download, which offers `offer` and sends `content`."""

    def __init__(self, topics: Topics, says: Any, content: bytes, **offer: Any) -> None:
        self.stored = threading.Event()
        self._topics, self._says, self._content = topics, says, content
        self._offer = {
            "job_id": "b" * 64, "name": "gbt", "model": "gbt", "mode": "oracle",
            "artifact_id": hashlib.sha256(content).hexdigest(), "size_bytes": len(content),
            "chunk_bytes": CHUNK_BYTES,
        } | offer  # fmt: skip

    def __call__(self, ask: Any, client: str) -> list[Outgoing]:
        if getattr(ask, "type", "") == "fetch":
            return [self._says(client, ask.id, self._offer)]
        if isinstance(ask, Stored):
            self.stored.set()
            return []
        indices = [index for start, stop in ask.missing for index in range(start, stop)]
        return [
            Outgoing(
                self._topics.download_chunk(client, index),
                self._content[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES],
                qos=0,
            )
            for index in indices[:16]
        ]


Sells = Callable[..., Shop]
Fetch = Callable[..., tuple[int, str]]


@pytest.fixture
def sells(peer: Any, says: Any, topics: Topics) -> Sells:
    """`sells(content, **offer)`: a coordinator that has this artifact."""

    def sell(content: bytes, *, kind: type[Shop] = Shop, **offer: Any) -> Shop:
        shop = kind(topics, says, content, **offer)
        peer(shop)
        return shop

    return sell


@pytest.fixture
def fetch(at: list[str], capsys: pytest.CaptureFixture[str]) -> Fetch:
    """`fetch(folder, *options)`: the exit code of `fleet get`, and what it complains of."""

    def run(out: Path, *more: str) -> tuple[int, str]:
        code = main(["get", "gbt", "-o", str(out), *at, *more])
        return code, capsys.readouterr().err

    return run


def test_a_download_is_checked_and_confirmed(sells: Sells, fetch: Fetch, tmp_path: Path) -> None:
    """The bundle lies there whole, nothing else does, and the coordinator is told."""
    content = random.Random(7).randbytes(10 * CHUNK_BYTES + 17)
    shop = sells(content)
    assert fetch(tmp_path / "out", "--raw")[0] == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["gbt.tar.zst"]
    assert (tmp_path / "out" / "gbt.tar.zst").read_bytes() == content
    assert shop.stored.wait(DEADLINE_S)


def test_a_file_that_is_there_already_is_left_alone(
    sells: Sells, fetch: Fetch, tmp_path: Path
) -> None:
    sells(b"x" * 1000)
    kept = tmp_path / "gbt.tar.zst"
    kept.write_bytes(b"of an earlier training")
    code, said = fetch(tmp_path, "--raw")
    assert (code, f"{kept} exists already" in said) == (1, True)
    code, said = fetch(kept, "--raw")
    assert (code, f"{kept}: is a file, and a folder is wanted" in said) == (2, True)
    assert kept.read_bytes() == b"of an earlier training"


@pytest.mark.parametrize(
    ("offer", "more", "words"),
    [({"artifact_id": "c" * 64}, ["--raw"], "does not hash"), ({}, [], "")],
    ids=["another hash", "no archive"],
)
def test_what_is_not_what_it_should_be_is_not_kept(
    sells: Sells, fetch: Fetch, tmp_path: Path, offer: dict[str, Any], more: list[str], words: str
) -> None:
    sells(b"no archive" * 100, **offer)
    code, said = fetch(tmp_path / "out", *more)
    assert (code, words in said) == (1, True)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.system
@pytest.mark.posix  # there are no such limits
def test_a_full_disk_is_told_with_the_file(
    sells: Sells, fetch: Fetch, at: list[str], tmp_path: Path
) -> None:
    sells(b"x" * 3 * CHUNK_BYTES)
    command = [sys.executable, "-m", "coordinator.cli", "get", "gbt", "--raw", "-o", tmp_path, *at]
    ran = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -f 64; exec "$@"', "sh", *command],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    told = rf"error: {re.escape(str(tmp_path))}/\.fleet-get-\w+/bundle\.part: File too large\n"
    assert re.fullmatch(told, ran.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
@pytest.mark.posix  # needs SIGKILL
def test_what_a_killed_one_has_left_is_cleared_away(
    sells: Sells, fetch: Fetch, at: list[str], tmp_path: Path
) -> None:
    bundle = archive(tmp_path / "bundle", entry("report.json"), entry("model.json"))
    sells(bundle.read_bytes())
    out = tmp_path / "out"
    killed = (
        "import os, sys, tarfile; from coordinator.cli import main\n"
        "read = tarfile.TarInfo.frombuf\n"
        "def once(cls, *args):\n"
        "    tarfile.TarInfo.frombuf = lambda *_: os.kill(os.getpid(), 9)\n"
        "    return read(*args)\n"
        "tarfile.TarInfo.frombuf = classmethod(once)\n"
        "main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", killed, "get", "gbt", "-o", str(out), *at]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == -9
    assert [path.name for path in out.rglob("report.json")] == ["report.json"]
    assert not (out / "gbt").exists()
    assert fetch(out)[0] == 0
    assert [path.name for path in out.iterdir()] == ["gbt"]
    assert {path.name for path in (out / "gbt").iterdir()} == {"report.json", "model.json"}


def test_two_that_fetch_the_same_do_not_spoil_each_other_s(
    sells: Sells, fetch: Fetch, tmp_path: Path
) -> None:
    begun = threading.Event()
    first: list[str] = []

    class Slow(Shop):
        """Whoever asks first is given a chunk, and the rest once another has it all."""

        def __call__(self, ask: Any, client: str) -> list[Outgoing]:
            sent = super().__call__(ask, client)
            if getattr(ask, "type", "") == "fetch":
                first.append(client)
            elif client == first[0] and not self.stored.is_set():
                sent = [] if begun.is_set() else sent[:1]
                begun.set()
            return sent

    content = random.Random(7).randbytes(10 * CHUNK_BYTES)
    sells(content, kind=Slow)
    codes: list[int] = []
    slow = threading.Thread(target=lambda: codes.append(fetch(tmp_path, "--raw")[0]))
    slow.start()
    assert begun.wait(DEADLINE_S)
    assert fetch(tmp_path, "--raw")[0] == 0
    slow.join(DEADLINE_S)
    assert codes == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["gbt.tar.zst"]
    assert (tmp_path / "gbt.tar.zst").read_bytes() == content


@pytest.mark.parametrize("is_whole", [True, False])
def test_of_what_is_run_and_fetched_a_script_reads_one_object(
    at: list[str], peer: Any, says: Any, topics: Topics, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], is_whole: bool,
) -> None:  # fmt: skip
    bundle = archive(tmp_path / "bundle", entry("report.json")).read_bytes()
    shop = Shop(topics, says, bundle, **({} if is_whole else {"artifact_id": "c" * 64}))
    row = {
        "job_id": "b" * 64, "name": "gbt", "state": "completed", "host": "pi", "metrics": None,
        "added": True, "differs": [],
    }  # fmt: skip

    def answer(ask: Any, client: str) -> list[Outgoing]:
        if getattr(ask, "type", "") in {"run", "show"}:
            return [says(client, ask.id, row)]
        return shop(ask, client)

    peer(answer)
    out = tmp_path / "out"
    job = ["run", "--model", "gbt", "--mode", "oracle", "--get", str(out), "--json"]
    assert main([*job, *at]) == (0 if is_whole else 1)
    found = json.loads(capsys.readouterr().out)
    if is_whole:
        assert (found["state"], found["path"]) == ("completed", str(out / "gbt"))
        assert found["files"] == [str(out / "gbt" / "report.json")]
    else:
        assert found["ok"] is False
        assert "does not hash" in found["message"]


@pytest.mark.system
def test_a_report_of_another_trainer_is_brought_without_a_page(
    sells: Sells, fetch: Fetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sells(archive(tmp_path / "bundle", entry("own_train.json")).read_bytes())
    code, said = fetch(tmp_path / "out")
    assert (code, "gbt: no page was drawn: own_train.json: " in said) == (0, True)
    folder = tmp_path / "out" / "gbt"
    assert [path.name for path in folder.iterdir()] == ["own_train.json"]
    assert main(["report", str(folder)]) == 1
    assert "own_train.json: " in capsys.readouterr().err


@pytest.mark.words
def test_a_result_without_a_report_says_who_writes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 1
    assert f"{tmp_path.name}: has no report; a trainer that is not built in" in (
        capsys.readouterr().err.replace("\n", " ")
    )


@pytest.mark.parametrize(
    "offer",
    [
        {"name": "../escaped"},
        {"name": "aux.txt"},
        {"name": "escaped."},
        {"name": "/tmp/escaped"},  # noqa: S108 - never written to
        {"artifact_id": "../../escaped"},
        {"size_bytes": -1},
        {"chunk_bytes": 1 << 40},
        {"name": None},
    ],
    ids=json.dumps,
)
def test_an_offer_never_leads_out_of_the_folder(
    sells: Sells, fetch: Fetch, tmp_path: Path, offer: dict[str, Any]
) -> None:
    sells(b"x" * 1000, **offer)
    code, said = fetch(tmp_path / "out" / "deep", "--raw")
    assert (code, "makes no sense" in said) == (1, True)
    assert list(tmp_path.rglob("*")) == []
