"""What the record and the logs tell people: why a job failed, what lifted what, who did it."""

from __future__ import annotations

import errno
import logging
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from agent.core.effects import TrainerExited, TrainerLine, Vitals
from agent.service.disk_faults import fault_of
from agent.spool.checkpoints import Checkpoints
from agent.spool.spool import Spool
from broker.clock import Now
from broker.errors import BadStream, plain
from broker.programs.unusable import Unusable
from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from broker.system.bundle import BundleInfo
from tests.harness.agent import GIB, HEX, JOB, Agent, leased, shell_of
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
    agent = Agent()
    shell = shell_of(agent.core, Spool(tmp_path), Checkpoints(tmp_path))
    agent.runs()
    shell._children[(JOB, 1)] = _Trainer()
    agent.hears(request_)
    with caplog.at_level(logging.INFO):
        shell.turn([TrainerExited(JOB, 1, 75)], Now(600.0, 600.0))
    (told,) = [one for one in caplog.records if "its trainer" in one.getMessage()]
    assert (told.levelno, words in told.getMessage()) == (logging.INFO, True)


class _Trainer:
    """A trainer's process that never has to be ended."""

    trainer_pid = 77

    def send_signal(self, *, kill: bool) -> None:
        assert not kill


def _bundled(_folder: Path, path: Path) -> BundleInfo:
    path.write_bytes(b"x")
    return BundleInfo(HEX, 1)


class _Told:
    """An agent's shell, which runs a job to its end, and hears what becomes of the result."""

    def __init__(self, tmp: Path) -> None:
        self.agent, self.now = Agent(), Now(600.0, 600.0)
        self.events: deque[Any] = deque()
        self.shell = shell_of(
            self.agent.core, Spool(tmp, bundler=_bundled), Checkpoints(tmp),
            publish=lambda _: True, put=self.events.append, start=lambda _: (_Trainer(), False),
            measure=lambda _: self.events.append(Vitals(8 * GIB, "d")),
        )  # fmt: skip

    def happens(self, event: Any) -> None:
        self.events.append(event)
        while self.events:
            self.shell.turn([self.events.popleft()], self.now)

    def hears(self, request: Any) -> None:
        self.happens(Incoming(self.agent.topics.request("pi"), m.encode(request)))

    def is_assigned(self, attempt: int = 1) -> None:
        self.hears(m.Assign(
            id=f"a{attempt}", job_id=JOB, attempt=attempt, instance="i1", name="gru-oracle",
            model="gbt", mode="oracle",
        ))  # fmt: skip
        self.happens(leased(self.agent.core))

    def finishes(self) -> str:
        """Run it to its end; the id of its report."""
        self.is_assigned()
        self.happens(TrainerLine(JOB, 1, '{"event":"result","metrics":{"auroc":0.9},"files":[]}'))
        self.happens(TrainerExited(JOB, 1, 0))
        return self.agent.core.state.owed[JOB].report.id


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
    told = _Told(tmp_path)
    message = said(told.finishes())
    caplog.clear()
    with caplog.at_level(logging.INFO, "fleet.agent"):
        if isinstance(message, int):
            told.is_assigned(message)
        else:
            told.hears(message)
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
    shell = _Told(tmp_path)
    with caplog.at_level(logging.INFO):
        report_id = shell.finishes()
        shell.hears(m.Noted(id="n", report_id=report_id, job_id=JOB, attempt=1, verdict="stored"))
    told = [one.getMessage() for one in caplog.records if one.name == "fleet.agent"]
    about = f"job gru-oracle ({JOB[:12]}), attempt 1: "
    assert [one.removeprefix(about) for one in told if "job" in one] == [
        "started from the beginning", "its trainer is done", "finished, 0.0 MiB to hand over",
        "over, nothing of it is left here",
    ]  # fmt: skip
