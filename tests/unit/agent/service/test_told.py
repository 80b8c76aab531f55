"""What the record and the logs tell people: why a job failed, what lifted what, who did it."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from agent.core.effects import TrainerExited, TrainerLine
from agent.service.disk_faults import fault_of
from agent.spool.spool import Spool
from broker.errors import BadStream, plain
from broker.programs.unusable import Unusable
from broker.protocol import messages as m
from broker.system.bundle import BundleInfo
from tests.harness.agent import HEX, JOB
from tests.harness.agent_shell import AgentShell
from tests.harness.coordinator import Fleet, spec


def test_an_error_in_words_is_never_empty(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as missing:
        (tmp_path / "x").read_bytes()
    assert plain(missing.value) == f"{tmp_path / 'x'}: No such file or directory"
    denied = PermissionError(errno.EACCES, "Permission denied", "/srv/x")
    assert plain(denied) == "/srv/x: Permission denied; be its owner, or use sudo"
    assert plain(ValueError("too many")) == "too many"
    assert plain(ConnectionResetError()) == "ConnectionResetError"


def test_what_cannot_be_used_is_told_by_a_code() -> None:
    refused = BadStream("its bytes have another hash")
    full, broken = OSError(errno.ENOSPC, "No space left"), OSError(errno.EIO, "I/O error")
    codes = {refused: "bad-content", full: "no-room", broken: "disk", KeyError("x"): "internal"}
    assert {error: fault_of(error).code for error in codes} == codes
    assert fault_of(broken).name == "EIO"
    assert fault_of(Unusable("slow", limit_s=9.0)) == m.Fault(code="slow", limit_s=9.0)


def test_the_end_of_a_pause_is_not_recorded_as_a_pause() -> None:
    fleet = Fleet()
    fleet.asks(m.AskPause(id="p"))
    fleet.asks(m.AskPause(id="q", off=True))
    assert [one.action for one in fleet.actions] == ["pause", "pause off"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (m.Cancel(id="c", job_id=JOB, attempt=1, why="cancelled"), "is cancelled"),
        (m.Cancel(id="c", job_id=JOB, attempt=1, why="requeued"), "is cancelled: requeued"),
        (m.Release(id="r", job_id=JOB, attempt=1, why=m.Why(code="drained", by="operator:al")),
         "is given back: drained by operator:al"),
    ],
)  # fmt: skip
def test_a_trainer_that_was_told_to_end_is_no_warning(
    request_: Any, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent's log says what has become of the job, not which exit code that has."""
    shell = AgentShell(tmp_path)
    shell.assigned()
    shell.hears(request_)
    with caplog.at_level(logging.INFO):
        shell.happens(TrainerExited(JOB, 1, 75))
    (told,) = [one for one in caplog.records if "its trainer" in one.getMessage()]
    assert (told.levelno, words in told.getMessage()) == (logging.INFO, True)


def _bundled(_folder: Path, path: Path) -> BundleInfo:
    path.write_bytes(b"x")
    return BundleInfo(HEX, 1)


def _told(tmp: Path) -> AgentShell:
    return AgentShell(tmp, spool=Spool(tmp, bundler=_bundled))


def _finishes(shell: AgentShell) -> str:
    """Run a job to its end; the id of its report."""
    shell.assigned(name="gru-oracle")
    shell.happens(TrainerLine(JOB, 1, '{"event":"result","metrics":{"auroc":0.9},"files":[]}'))
    shell.happens(TrainerExited(JOB, 1, 0))
    return shell.agent.core.state.owed[JOB].report.id


def _void(state: Any) -> Any:
    def noted(report_id: str) -> m.Noted:
        return m.Noted(
            id="n", report_id=report_id, job_id=JOB, attempt=1, verdict="superseded", state=state
        )

    return noted


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (_void("running"), "the job is another attempt's by now"),
        (_void("completed"), "the job is completed already"),
        (_void(None), "the coordinator does not know the job"),
        (lambda _: m.Cancel(id="c", job_id=JOB, attempt=1, why="running"), "the job is running"),
        (lambda _: 2, "the job is another attempt's by now"),
    ],
)  # fmt: skip
def test_a_result_that_is_thrown_away_says_why(
    said: Any, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shell = _told(tmp_path)
    message = said(_finishes(shell))
    caplog.clear()
    with caplog.at_level(logging.INFO, "fleet.agent"):
        if isinstance(message, int):
            shell.assigned(message)
        else:
            shell.hears(message)
    about = f"job gru-oracle ({JOB[:12]}), attempt 1: "
    (line,) = [one for one in caplog.records if one.getMessage().startswith(about)]
    words = f"its result was not taken: {why}; nothing of it is left here"
    assert (line.levelno, line.getMessage().removeprefix(about)) == (logging.WARNING, words)


def test_whoever_is_told_to_stop_learns_that_another_has_the_job() -> None:
    """It was away for longer than its lease, and is still at it."""
    fleet = Fleet(spec())
    pi = fleet.host("pi").joins()
    job = pi.runs()
    pi.status("offline", "lost")
    fleet.passes(700.0)
    fleet.host("pc").joins().runs()
    pi.session = "s-new"
    pi.joins((job.job_id, 1, "running"))
    assert [one.why for one in pi.heard(m.Cancel)] == ["running"]


def test_every_line_of_an_agents_log_names_a_job_alike(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shell = _told(tmp_path)
    with caplog.at_level(logging.INFO):
        report_id = _finishes(shell)
        shell.hears(m.Noted(id="n", report_id=report_id, job_id=JOB, attempt=1, verdict="stored"))
    told = [one.getMessage() for one in caplog.records if one.name == "fleet.agent"]
    about = f"job gru-oracle ({JOB[:12]}), attempt 1: "
    assert [one.removeprefix(about) for one in told if "job" in one] == [
        "started from the beginning", "its trainer is done", "finished, 0.0 MiB to hand over",
        "over, nothing of it is left here",
    ]  # fmt: skip
