"""What `fleet run --wait` and `fleet logs --follow` tell of a job that they follow."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.loglines import encode_lines
from broker.protocol.messages import JobRow, Progress, encode
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic, Topics
from coordinator.cli.logs import Follower
from coordinator.ui.follow import _heard, _Screen, in_fields, outcome

TOPICS = Topics()


def _row(state: str, attempt: int, **more: Any) -> JobRow:
    fields: dict[str, Any] = {
        "job_id": "a" * 64, "name": "gbt", "model": "gbt", "mode": "oracle", "state": state,
        "priority": 0, "attempt": attempt, "host": None if state == "pending" else "lap",
        "error": None, "artifact_id": None, "metrics": None, "started_at": None,
        "created_at": "2026-05-28T20:26:57.250Z", "finished_at": None,
    }  # fmt: skip
    return JobRow(**(fields | more))


def _shown(capsys: pytest.CaptureFixture[str], answered: JobRow, *heard: JobRow) -> list[str]:
    """What is printed when rows are heard after an answer."""
    screen = _Screen(quiet=False)
    row: dict[str, Any] = answered.model_dump(mode="json")
    screen.show(row, None)
    for one in heard:
        row = _heard(Kind.JOB, encode(one), row, screen)
    screen.close()
    return capsys.readouterr().out.splitlines()


def test_a_row_that_an_answer_has_overtaken_is_not_told(capsys: Any) -> None:
    """The broker's copy comes later than the answer, and is older."""
    running = _row("running", 1)
    said = _shown(capsys, running, _row("pending", 0), _row("claimed", 1), running)
    assert said == ["gbt running on lap"]
    done = _row("completed", 1)
    assert _shown(capsys, done, running) == ["gbt completed on lap; `fleet get gbt` fetches it"]


def test_a_job_that_is_given_back_is_told(capsys: Any) -> None:
    """It waits again, and is then at another attempt."""
    said = _shown(capsys, _row("running", 1), _row("pending", 1), _row("claimed", 2))
    assert said == ["gbt running on lap", "gbt pending", "gbt claimed on lap"]


def test_the_last_word_is_what_came_of_it_and_what_comes_next(capsys: Any) -> None:
    """State, training time, main score; and in fields for scripts, from the same row."""
    running = _row("running", 1)
    done = _row("completed", 1, ran_s=108.0, metrics={"auroc": 0.9456, "f1": 0.5})
    assert _shown(capsys, running, done) == [
        "gbt running on lap",
        "gbt completed on lap: trained for 2 min, AUROC 0.946; `fleet get gbt` fetches it",
    ]
    row = done.model_dump(mode="json")
    assert outcome(row, fetches=True).endswith("AUROC 0.946"), "it is fetched anyway"
    told = in_fields(row)
    assert (told["score"], told["next"]) == ({"name": "auroc", "value": 0.9456}, "fleet get gbt")
    failed = _row("failed", 1, ran_s=12.0, error="no memory")
    assert _shown(capsys, running, failed)[1:] == [
        "gbt failed on lap: trained for 12 s; `fleet logs gbt` shows its output"
    ]
    cancelled = _row("cancelled", 0, host=None)
    assert _shown(capsys, cancelled) == ["gbt cancelled; `fleet requeue gbt` brings it back"]
    assert in_fields(cancelled.model_dump(mode="json"))["score"] is None


def test_why_it_waits_is_said_once(capsys: Any) -> None:
    """A count of seconds is no news."""
    screen = _Screen(quiet=False)
    for why in ("it waits: 293 s more", "it waits: 283 s more", ""):
        screen.say(why)
    assert capsys.readouterr().err.splitlines() == [
        "it waits: 293 s more",
        "Ctrl-C stops waiting, the job stays",
    ]


def test_in_a_pipe_it_is_said_now_and_then_how_far_it_is(capsys: Any) -> None:
    """Not at each epoch; and nothing to a script that reads JSON."""
    times = [0.0]
    for quiet in (False, True):
        screen = _Screen(quiet=quiet, clock=lambda: times[-1])
        row: dict[str, Any] = _row("running", 1).model_dump(mode="json")
        screen.show(row, None)
        for epoch in range(1, 61):
            times.append(times[-1] + 1.0)
            said = Progress(attempt=1, epoch=epoch, epochs=80, val_loss=0.5, eta_s=240.0 - epoch)
            _heard(Kind.PROGRESS, encode(said), row, screen)
        screen.close()
        told = [
            "gbt running on lap",
            "gbt running on lap: 25%, epoch 20/80, loss 0.5000, 4 min left",
            "gbt running on lap: 50%, epoch 40/80, loss 0.5000, 3 min left",
            "gbt running on lap: 75%, epoch 60/80, loss 0.5000, 3 min left",
        ]
        assert capsys.readouterr().out.splitlines() == ([] if quiet else told)


def _line(number: int, text: str, job_id: str = "a" * 64) -> tuple[Topic, bytes]:
    return TOPICS.parse(TOPICS.log("lap", job_id)), encode_lines(1, number, [text.encode()])


def _moved(state: str, job_id: str = "a" * 64) -> tuple[Topic, bytes]:
    return TOPICS.parse(TOPICS.job(job_id)), encode(_row(state, 1))


def test_a_followed_log_is_that_of_one_job_until_it_is_over() -> None:
    """Whatever others say or become; what the answer had is left out."""
    follower = Follower("a" * 64, 1, 2)
    other = "b" * 64
    heard = [_line(2, "two"), _line(3, "not ours", other), _line(3, "three")]
    assert follower.take(heard) == ["three"]
    assert follower.take([_line(4, "four"), _line(5, "five"), _moved("running")]) == [
        "four", "five",
    ]  # fmt: skip
    for moved in ((_moved("running")[0], b"no row"), _moved("completed", other)):
        assert follower.take([moved]) == []
        assert not follower.is_over
    assert follower.take([_line(6, "done"), _moved("completed")]) == ["done"]
    assert follower.is_over
