"""`fleet show`: how long a job took, with what its earlier attempts took."""

from __future__ import annotations

import re
from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.cli.job_lines import set_aside, took_in_all
from coordinator.core.effects import LookUp
from coordinator.jobs.causes import cause
from coordinator.ui.job_view import counted, event_cells, history
from tests.harness.coordinator import Fleet, spec
from tests.harness.drawn import drawn
from tests.harness.mirrored import told_row


def event(
    minute: int, before: str, after: str, attempt: int = 1, ran_s: float | None = None
) -> dict[str, Any]:
    """A move of a job, at a minute of an hour that is long past."""
    at = f"2026-05-28T20:{minute:02}:00Z"
    return {"at": at, "from": before, "to": after, "attempt": attempt, "ran_s": ran_s}


JOB: dict[str, Any] = told_row("gbt", "completed").model_dump(mode="json")
BEGUN = [event(0, "pending", "claimed"), event(1, "claimed", "running")]
FIRST = [*BEGUN, event(3, "running", "running"), event(8, "running", "pending")]
AGAIN = [event(9, "pending", "claimed", 2), event(10, "claimed", "running", 2)]


@pytest.mark.words
@pytest.mark.parametrize(
    ("events", "began", "ended", "words"),
    [
        ([], None, None, ""),
        (FIRST, None, None, "7 min the attempt before"),
        (
            [*FIRST, *AGAIN, event(12, "running", "completed", 2)],
            10, 12, "2 min the newest attempt, 9 min all 2 together",
        ),
        ([*FIRST, *AGAIN, event(12, "running", "pending", 2)], None, None, "9 min all 2 together"),
        ([*BEGUN, event(3, "running", "failed")], 1, 3, "2 min"),
    ],
)  # fmt: skip
def test_what_a_job_took_has_its_earlier_attempts(
    events: list[dict[str, Any]], began: int | None, ended: int | None, words: str
) -> None:
    at = {
        name: None if minute is None else f"2026-05-28T20:{minute:02}:00Z"
        for name, minute in (("started_at", began), ("finished_at", ended))
    }
    assert took_in_all({**JOB, "events": events, **at}) == words


@pytest.mark.words
def test_what_was_measured_of_an_attempt_counts_and_no_wait_for_its_report() -> None:
    """It was taken for lost after 7 minutes, came back, and said that its trainer ran for 2."""
    back = [event(20, "pending", "running"), event(30, "running", "completed", ran_s=120.0)]
    at = {"started_at": "2026-05-28T20:20:00Z", "finished_at": "2026-05-28T20:30:00Z"}
    assert took_in_all({**JOB, "events": [*FIRST, *back], "ran_s": 120.0, **at}) == "2 min"
    kept = [*FIRST[:-1], event(8, "running", "failed"), event(30, "failed", "failed", ran_s=180.0)]
    assert took_in_all({**JOB, "events": kept, "ran_s": 180.0, **at}) == "3 min"


def _aside(attempt: int, **more: Any) -> dict[str, Any]:
    return {
        "attempt": attempt, "at": "2026-05-01T10:00:00Z", "metrics": {"auroc": 0.945},
        "size_bytes": 2_000_000, "set_aside_at": "2026-05-02T10:00:00Z",
        "kept_until": "2026-06-01T10:00:00Z", "is_there": True, **more,
    }  # fmt: skip


@pytest.mark.words
def test_results_that_were_set_aside_are_listed_with_what_fetches_them() -> None:
    told = set_aside(
        {"name": "gbt", "job_id": "a" * 64, "others": []},
        [_aside(1, is_there=False), _aside(2, metrics={}, size_bytes=None), _aside(3)],
    )
    lines = [str(line._text) for line in told]
    assert [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d [^:,]+", "DAY", line) for line in lines] == [
        "  attempt 3, of DAY: AUROC 0.945, 1.9 MiB, kept until DAY: `fleet get gbt --attempt 3`",
        "  attempt 2, of DAY: kept until DAY: `fleet get gbt --attempt 2`",
        "  attempt 1, of DAY: AUROC 0.945, 1.9 MiB, deleted",
    ]
    other = {"job_id": "b" * 64, "state": "pending", "host": None, "in_plan": True}
    (told,) = set_aside({"name": "gbt", "job_id": "a" * 64, "others": [other]}, [_aside(1)])
    assert f"`fleet get {'a' * 12} --attempt 1`" in str(told._text), "its name means the other one"


@pytest.mark.words
@pytest.mark.parametrize("window", [51, 72, 80, 100, 200])
def test_a_history_names_who_did_it_whatever_was_the_reason(window: int) -> None:
    """A long reason goes on below itself; it does not cost who cancelled the job."""
    at = "2026-05-28T20:26:57.250Z"
    why = "the trainer of an earlier attempt ran out of memory on a host that has 8 GiB of it"
    rows: list[dict[str, Any]] = [
        {"at": at, "event": "completed", "attempt": 1, "host": "gaming-pc-12",
         "why": cause("text", text=why), "who": "host:gaming-pc-12"},
        {"at": at, "event": "requeued", "attempt": 1, "host": None, "why": {},
         "who": "operator:root"},
    ]  # fmt: skip
    head, _, *body = drawn([history(rows)], window).splitlines()
    assert max(len(line) for line in (head, *body)) <= window
    assert ("AT" in head, "BY" in head) == (window >= 80, window > 51)
    assert ("operator:root" in "".join(body)) == (window > 51)
    indent = head.index("WHY")
    assert " ".join(" ".join(line[indent:] for line in body).split()) == why
    assert all(line[:indent].isspace() for line in body[1:-1])


def test_only_what_counts_is_counted_against_a_job() -> None:
    fleet = Fleet(spec(retries=2))

    def shown() -> Any:
        fleet.asks(m.AskShow(id="s", job="job"))
        return fleet.took(LookUp)[0].data

    pi = fleet.host("pi").joins()
    job = pi.runs("job")
    fleet.asks(m.AskDrain(id="d", host="pi", now=True))
    pi.reports(m.Released, job, why=m.Why(code="drained"))
    data = shown()
    assert (data["attempt"], data["losses"], data["retries"]) == (1, [0, 3], [0, 2])
    assert counted(data) == ""
    assert counted(data | {"losses": [1, 3]}) == "lost 1 of 3 times"
    fleet.asks(m.AskResume(id="r", host="pi"))
    pi.reports(m.Failed, pi.runs("job"), error="CUDA out of memory", transient=True)
    assert counted(shown()) == "1 of 2 retries used"


def test_a_host_that_gave_a_job_back_is_named_as_the_host() -> None:
    event = {"at": "2026-01-02T12:00:00Z", "event": "released", "attempt": 1, "host": None,
             "who": "host:pi", "why": cause("text", text="drained")}  # fmt: skip
    assert event_cells(event)[3:5] == ("pi", "host")
    assert event_cells(event | {"who": "coordinator"})[3:5] == ("-", "coordinator")
