"""What `fleet run --wait` and `fleet logs --follow` tell of a job that they follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.protocol.link_events import Outgoing
from broker.protocol.loglines import encode_lines
from broker.protocol.messages import Failed, JobRow, encode
from broker.protocol.topics import Topic, Topics
from broker.system.settings import BrokerSettings
from coordinator.cli.logs import Follower
from coordinator.client.client import OperatorClient
from coordinator.ui.follow import Board, in_fields, until_over, waits_for
from tests.harness.coordinator import running
from tests.harness.mirrored import told_row

TOPICS = Topics()


def _row(state: str, attempt: int, **more: Any) -> JobRow:
    host = None if state == "pending" else "lap"
    return told_row("gbt", state, **{"job_id": "a" * 64, "attempt": attempt, "host": host} | more)


@pytest.fixture
def followed(
    where: BrokerSettings, topics: Topics, peer: Any, says: Any, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """`followed(*rows)`: what is printed of a job that is so at each look."""

    def follow(*rows: JobRow, **more: Any) -> list[str]:
        looks = [row.model_dump(mode="json") for row in rows]

        def answer(ask: Any, client: str) -> list[Outgoing]:
            if ask.type == "why":
                return [says(client, ask.id, {"state": "claimed", "hosts": [], "summary": ""})]
            row = looks.pop(0) if len(looks) > 1 else looks[0]
            return [says(client, ask.id, row), Outgoing(topics.job(row["job_id"]), b"{}")]

        coordinator = peer(answer)
        with OperatorClient(where, watch=[topics.job("+")]) as client:
            until_over(client, rows[0].job_id, quiet=False, **more)
        coordinator.stop()
        return capsys.readouterr().out.splitlines()

    return follow


def test_a_job_that_is_given_back_is_told(followed: Any) -> None:
    said = followed(
        _row("claimed", 1), _row("running", 1), _row("pending", 1), _row("running", 2),
        _row("completed", 2),
    )  # fmt: skip
    done = "gbt completed on lap; `fleet get gbt` fetches it"
    assert said == ["gbt running on lap", "gbt pending", "gbt running on lap", done]


@pytest.mark.words
def test_the_last_word_is_what_came_of_it_and_what_comes_next(followed: Any) -> None:
    at_work = _row("running", 1)
    done = _row("completed", 1, ran_s=108.0, metrics={"auroc": 0.9456, "f1": 0.5})
    assert followed(at_work, done) == [
        "gbt running on lap",
        "gbt completed on lap: trained for 2 min, AUROC 0.946; `fleet get gbt` fetches it",
    ]
    assert followed(done, fetches=True)[-1].endswith("AUROC 0.946"), "it is fetched anyway"
    told = in_fields(done.model_dump(mode="json"))
    assert (told["score"], told["next"]) == ({"name": "auroc", "value": 0.9456}, "fleet get gbt")
    failed = _row("failed", 1, ran_s=12.0, error="no memory")
    assert followed(at_work, failed)[1:] == [
        "gbt failed on lap: trained for 12 s; `fleet logs gbt` shows its output"
    ]
    cancelled = _row("cancelled", 0, host=None)
    assert followed(cancelled) == ["gbt cancelled; `fleet requeue gbt` brings it back"]
    assert in_fields(cancelled.model_dump(mode="json"))["score"] is None


@pytest.mark.words
def test_an_error_is_told_while_the_job_waits_whatever_is_against_other_hosts() -> None:
    fleet, pi, job = running()
    fleet.host("bare").joins(data_id=None)
    pi.reports(Failed, job, error="no such module")
    assert waits_for(fleet.why()) == (
        "it waits: none of 2 known hosts can take it now: pi: retry 1 of 2 begins in 19 s; "
        "refused a moment ago: it has just failed here: no such module"
    )


@pytest.mark.words
def test_in_a_pipe_it_is_said_now_and_then_how_far_it_is(capsys: Any) -> None:
    times = [0.0]
    row: dict[str, Any] = _row("running", 1).model_dump(mode="json")
    for quiet in (False, True):
        board = Board(quiet=quiet, clock=lambda: times[-1])
        board.show([row])
        for epoch in range(1, 61):
            times.append(times[-1] + 1.0)
            said = {"attempt": 1, "epoch": epoch, "epochs": 80, "val_loss": 0.5}
            board.show([row | {"progress": said, "left_s": 0.5 if epoch == 60 else 240.0 - epoch}])
        told = [
            "gbt running on lap",
            "gbt running on lap: 25%, epoch 20/80, loss 0.5000, 4 min left",
            "gbt running on lap: 50%, epoch 40/80, loss 0.5000, 3 min left",
            "gbt running on lap: 75%, epoch 60/80, loss 0.5000, it ends soon",
        ]
        assert capsys.readouterr().out.splitlines() == ([] if quiet else told)


def _line(number: int, text: str, job_id: str = "a" * 64) -> tuple[Topic, bytes]:
    return TOPICS.parse(TOPICS.log("lap", job_id)), encode_lines(1, number, [text.encode()])


def _moved(state: str, job_id: str = "a" * 64) -> tuple[Topic, bytes]:
    return TOPICS.parse(TOPICS.job(job_id)), encode(_row(state, 1))


def test_a_followed_log_is_that_of_one_job_until_it_is_over() -> None:
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
