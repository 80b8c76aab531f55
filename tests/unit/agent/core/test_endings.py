"""How a run ends: failures, bundles, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import effects as fx
from broker.figures import how_ended
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected
from tests.harness.agent import HEX, JOB, Agent


@pytest.mark.words
@pytest.mark.parametrize(
    ("code", "lines", "words"),
    [
        (2, ['{"event":"error","kind":"bad_input","message":"no host x"}'], "bad_input: no host x"),
        (1, ["Traceback ...", "ValueError: boom"], "ValueError: boom"),
        (75, [], "exit code 75"),
    ],
)
def test_a_failure_is_told_in_the_trainers_words(code: int, lines: list[str], words: str) -> None:
    """And repeated until it is noted (J3), also over a restart of the agent."""
    agent = Agent()
    agent.runs()
    agent.ends(code, 1, *lines)
    (failed,) = agent.said(m.Failed)
    assert words in failed.error
    assert failed.exit_code == code
    assert agent.took(fx.SpoolReport)
    agent.passes(20)
    repeated = agent.said(m.Failed)
    assert len(repeated) >= 2
    assert {one.id for one in repeated} == {failed.id}
    agent.noted(failed, "recorded")
    agent.passes(60)
    assert not agent.said(m.Failed)


@pytest.mark.words
@pytest.mark.parametrize(
    ("code", "lines", "said"),
    [
        (-9, [], f"{how_ended(-9)}, perhaps for want of memory, and reported no error"),
        (-15, [""], "was ended by SIGTERM and reported no error"),
        (1, ["a", "ValueError: b", ""],
         "ended with exit code 1 and reported no error; its last line: ValueError: b"),
    ],
)  # fmt: skip
def test_the_first_line_of_a_failure_says_all_that_is_known(
    code: int, lines: list[str], said: str
) -> None:
    """Of a failure that is tried again nobody is told more; what is not there is not promised."""
    agent = Agent()
    agent.runs()
    agent.ends(code, 1, *lines)
    (failed,) = agent.said(m.Failed)
    first, *others = failed.error.splitlines()
    assert first == f"the trainer {said}"
    assert others == (["what came before:", "a"] if lines[:-1] else [])


def test_a_report_says_how_long_the_trainer_ran_and_no_more() -> None:
    """Not from the assignment, not the bundling; and the same when it is said again hours later."""
    agent = Agent()
    agent.assigned()
    agent.passes(3)
    agent.handle(fx.TrainerStarted(JOB, 1, 77))
    agent.passes(40)
    agent.ends()
    agent.passes(20)
    agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
    assert agent.said(m.Finished)[0].ran_s == pytest.approx(40.0)
    assert agent.took(fx.SpoolReport)[0].report.ran_s == pytest.approx(40.0)
    agent.handle(Disconnected("gone"))
    agent.passes(7200)
    agent.handle(Connected("s2"))
    again = agent.said(m.Finished)[-1]
    assert (again.session, again.ran_s) == ("s2", pytest.approx(40.0))
    agent.granted(m.Rejected(reason="corrupt"))
    agent.handle(fx.BundleChecked(JOB, 1, whole=False))
    assert agent.said(m.Failed)[0].ran_s == pytest.approx(40.0)


def test_what_fails_is_given_back_or_is_stopped_says_how_long_it_ran() -> None:
    agent = Agent()
    agent.runs()
    agent.passes(5)
    agent.ends(1)
    assert agent.said(m.Failed)[0].ran_s == pytest.approx(5.0)
    agent.runs(2)
    agent.passes(6)
    agent.hears(m.Release(id="r", job_id=JOB, attempt=2))
    agent.passes(1)
    assert agent.leaves_off(2).ran_s == pytest.approx(7.0)
    agent.runs(3)
    agent.passes(8)
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=3))
    agent.passes(2)
    agent.ends(75, 3)
    assert agent.said(m.Stopped)[-1].ran_s == pytest.approx(10.0)
    agent.assigned(4)
    agent.passes(9)
    agent.handle(fx.TrainerExited(JOB, 4, None, "the trainer could not be started"))
    assert agent.said(m.Failed)[0].ran_s is None


@pytest.mark.words
@pytest.mark.parametrize(
    ("event", "error", "transient"),
    [
        (fx.TrainerExited(JOB, 1, 1), "exit code 1", True),
        (fx.TrainerExited(JOB, 1, -9), how_ended(-9), True),
        (fx.TrainerExited(JOB, 1, 2), "exit code 2", False),  # bad hyperparameters or data
        (fx.TrainerExited(JOB, 1, None, "no such file", transient=True), "no such file", True),
        (fx.TrainerExited(JOB, 1, None, "does not fit", transient=False), "does not fit", False),
        (fx.BundleFailed(JOB, 1, "disk full"), "disk full", False),
    ],
)
def test_a_failure_says_whether_another_attempt_may_go_well(
    event: Any, error: str, transient: bool
) -> None:
    agent = Agent()
    agent.runs()
    if isinstance(event, fx.BundleFailed):
        agent.ends(0)
    agent.handle(event)
    (failed,) = agent.said(m.Failed)
    assert error in failed.error
    assert failed.transient is transient


def test_a_finished_job_waits_for_room_on_the_disk() -> None:
    """It keeps its slot and its lease, and tries again ever more seldom; then it is handed over."""
    agent = Agent()
    agent.runs()
    agent.ends(0)
    assert agent.took(fx.MakeBundle)
    full = m.Fault(code="no-room")
    for _ in range(3):
        agent.said(m.Heartbeat)
        agent.handle(fx.BundleFailed(JOB, 1, "No space left on device", passing=True, fault=full))
        assert not agent.said(m.Failed)
        agent.passes(1)
        assert [one.fault for one in agent.said(m.Heartbeat)[-1].jobs] == [full]
        agent.passes(40)
        assert agent.took(fx.MakeBundle)
        assert agent.phase() == "bundling"
    agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
    assert agent.said(m.Finished)


def test_a_job_that_waits_for_room_can_be_cancelled() -> None:
    agent = Agent()
    agent.runs()
    agent.ends(0)
    agent.handle(fx.BundleFailed(JOB, 1, "No space left on device", passing=True))
    agent.took(fx.MakeBundle)
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1))
    assert agent.said(m.Stopped)
    assert agent.took(fx.ClearJob)
    agent.passes(1000)
    assert not agent.took(fx.MakeBundle)
