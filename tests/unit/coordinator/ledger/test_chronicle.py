"""The ledger's story: all that happened, once, in order, whatever the size of a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.clock import Now, rfc3339
from broker.protocol.messages import AskEvents, OperatorResponse
from coordinator.jobs.causes import cause
from coordinator.jobs.jobs import JobBook
from coordinator.jobs.records import Action
from coordinator.jobs.states import Event
from coordinator.ledger.ledger import Ledger
from tests.harness.coordinator import spec

T0 = 1.8e9


def action(wall_s: float, word: str = "drain", **more: Any) -> Action:
    fields = {"who": "operator:alice", "outcome": "done", "what": {}} | more
    return Action(at=rfc3339(wall_s), action=word, **fields)


def answered(number: int, wall_s: float, **more: Any) -> Action:
    response = OperatorResponse(id=f"r{number}", ok=True, data={"n": number})
    return action(wall_s, key=("operator:alice/cli", response.id), answer=response, **more)


def story(ledger: Ledger, job_id: str | None = None, **wanted: Any) -> Any:
    return ledger.story(AskEvents(id="e", **wanted), job_id)


def told(ledger: Ledger, **wanted: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    after, more, pages = (0, 0), True, 0
    while more:
        page = story(ledger, after=after, **wanted)
        rows += page["events"]
        after, more = tuple(page["next"]), page["more"]
        pages += 1
        assert pages < 1000, "it does not come to an end"
    return rows


def words(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['who']} {row['event']}" for row in rows]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """Two jobs, one after the other, and an operator between them."""
    made, book = Ledger(":memory:"), JobBook()
    one, two = book.add(spec("one"), Now(0, T0), "manifest"), None
    one = book.move(one, Event.ASSIGNED, Now(0, T0 + 1), "coordinator", attempt=1, host="pi")
    made.commit(book.take_changes())
    made.commit([action(T0 + 2, host="pi")])
    book.move(
        one, Event.REFUSED, Now(0, T0 + 3), "host:pi", cause("text", text="too small"), host=None
    )
    two = book.add(spec("two"), Now(0, T0 + 4), "manifest")
    book.move(two, Event.CANCELLED, Now(0, T0 + 5), "operator:bob")
    made.commit([
        *book.take_changes(),
        action(T0 + 5, "cancel", who="operator:bob", job_id=two.job_id),
        action(T0 + 6, "cancel", who="operator:bob", job_id=two.job_id, outcome="refused",
               what=cause("text", text="cancelled already")),
        action(T0 + 7, "reload", who="coordinator"),
    ])  # fmt: skip
    yield made
    made.close()


def test_moves_of_jobs_and_what_operators_did_are_one_story(ledger: Ledger) -> None:
    """Oldest first. A cancel that was done is told once, by the move of its job."""
    rows = told(ledger)
    assert words(rows) == [
        "manifest added", "coordinator assigned", "operator:alice drain", "host:pi refused",
        "manifest added", "operator:bob cancelled", "operator:bob cancel", "coordinator reload",
    ]  # fmt: skip
    assert rows[3] | {"job_id": ""} == {
        "at": rfc3339(T0 + 3), "who": "host:pi", "event": "refused", "outcome": "done",
        "job_id": "", "name": "one", "host": None, "attempt": 1, "from": "claimed",
        "to": "pending", "why": {"code": "text", "text": "too small"},
    }  # fmt: skip
    assert (rows[6]["outcome"], rows[6]["name"]) == ("refused", "two")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"who": "operator:bob"}, ["operator:bob cancelled", "operator:bob cancel"]),
        ({"who": "bob"}, ["operator:bob cancelled", "operator:bob cancel"]),
        ({"who": "operator"}, ["operator:alice drain", "operator:bob cancelled",
                               "operator:bob cancel"]),
        ({"who": "host"}, ["host:pi refused"]),
        ({"who": "%"}, []),
        ({"who": ""}, []),
        ({"host": "pi"}, ["coordinator assigned", "operator:alice drain", "host:pi refused"]),
        ({"host": "p_"}, []),
        ({"job_id": spec("one").job_id}, ["manifest added", "coordinator assigned",
                                          "host:pi refused"]),
        ({"since": T0 + 6}, ["operator:bob cancel", "coordinator reload"]),
        ({"since": T0 + 99}, []),
        ({"since": T0 + 1, "who": "coordinator"}, ["coordinator assigned",
                                                            "coordinator reload"]),
    ],
)  # fmt: skip
def test_a_part_of_the_story(ledger: Ledger, wanted: Any, expected: list[str]) -> None:
    """By who, host, job, time, and several of them."""
    for limit in (1, 2, 200):
        assert words(told(ledger, limit=limit, **wanted)) == expected


def test_a_reload_is_told_before_what_came_of_it() -> None:
    """They bear the same time, and people read from cause to effect."""
    ledger, book = Ledger(":memory:"), JobBook()
    book.add(spec("one"), Now(0, T0), "operator:alice")
    ledger.commit([*book.take_changes(), action(T0, "reload")])
    assert words(told(ledger)) == ["operator:alice reload", "operator:alice added"]
    ledger.close()


def test_what_comes_later_is_told_by_the_next_question(ledger: Ledger) -> None:
    """`fleet events --follow`: where a page ended is where the next one begins."""
    page = story(ledger)
    assert page["more"] is False
    place = page["next"]
    assert story(ledger, after=place)["events"] == []
    ledger.commit([action(T0 - 500, "resume")])
    (row,) = story(ledger, after=place)["events"]
    assert row["event"] == "resume", "even if the clock was set back meanwhile"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 10)), max_size=60), st.integers(1, 7))
def test_nothing_is_told_twice_or_left_out(steps: list[tuple[bool, int]], limit: int) -> None:
    """Any interleaving of both tables, any clock, any size of a page."""
    try:
        ledger, book, wall_s = Ledger(":memory:"), JobBook(), T0
        job = book.add(spec(), Now(0, wall_s), "0")
        for number, (is_action, step_s) in enumerate(steps, 1):
            wall_s += step_s
            if is_action:
                ledger.commit([*book.take_changes(), action(wall_s, who=str(number))])
            else:
                word = Event.ORPHANED if job.in_plan else Event.ADOPTED
                job = book.move(
                    job, word, Now(0, wall_s), str(number), in_plan=not job.in_plan
                )  # fmt: skip
        ledger.commit(book.take_changes())
        rows = told(ledger, limit=limit)
        assert sorted(int(row["who"]) for row in rows) == list(range(len(steps) + 1))
        for is_action in (True, False):
            mine = [int(row["who"]) for row in rows if (row["event"] == "drain") is is_action]
            assert mine == sorted(mine)
        if all(step_s > 0 for _, step_s in steps):
            assert [int(row["who"]) for row in rows] == list(range(len(steps) + 1))
    finally:
        ledger.close()


def test_a_page_fits_a_message() -> None:
    ledger, book = Ledger(":memory:"), JobBook()
    job = book.add(spec(), Now(0, T0), "x")
    for number in range(200):
        word = Event.ORPHANED if job.in_plan else Event.ADOPTED
        why = cause("text", text="\u20ac\x00" * 1000)
        job = book.move(job, word, Now(0, T0 + number), "x", why, in_plan=not job.in_plan)
    ledger.commit(book.take_changes())
    page = story(ledger)
    response = OperatorResponse(id="x", ok=True, data=page)
    assert 1 < len(page["events"]) < 200  # type: ignore[arg-type]
    assert len(response.model_dump_json().encode()) < 256 * 1024
    assert len(told(ledger)) == 201
    ledger.close()


def test_answers_come_back_as_they_were(tmp_path: Path) -> None:
    """The newest, oldest first; those of requests that were not looked at have none."""
    ledger = Ledger(tmp_path / "l.db")
    ledger.commit([answered(number, T0 + number) for number in range(10)])
    ledger.commit([action(T0 + 11, key=("observer:eve/x", "r0"), outcome="refused")])
    ledger.close()
    ledger = Ledger(tmp_path / "l.db")
    found = ledger.load_answers(3)
    assert [*found] == [("operator:alice/cli", f"r{number}") for number in (7, 8, 9)]
    assert found["operator:alice/cli", "r9"] == (
        rfc3339(T0 + 9), OperatorResponse(id="r9", ok=True, data={"n": 9})
    )  # fmt: skip
    ledger.close()


def test_old_actions_go_and_strangers_push_nobody_out() -> None:
    """By age; of those that were turned away the newest few stay."""
    ledger = Ledger(":memory:")
    ledger.commit([answered(number, T0 + number) for number in range(10)])
    ledger.commit([action(T0 + 9, outcome="refused", who="observer:eve") for _ in range(100)])
    assert ledger.prune_actions(rfc3339(T0 + 5), 2, 20) == 5 + 80
    rows = told(ledger)
    assert len([row for row in rows if row["who"] == "observer:eve"]) == 20
    assert [row["at"] for row in rows[:5]] == [rfc3339(T0 + n) for n in range(5, 10)]
    assert ledger.prune_actions(rfc3339(T0 + 99), 2, 20) == 3 + 20
    assert len(ledger.load_answers(99)) == 2, "what a replay is known by stays, whatever its age"
    ledger.close()
