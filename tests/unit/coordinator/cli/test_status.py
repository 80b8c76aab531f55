"""What `fleet status` says of what was refused, and how its lines stand."""

from __future__ import annotations

from typing import Any

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from coordinator.cli.status import _draw
from coordinator.core.effects import Warn
from tests.harness.coordinator import HEX, Fleet, spec
from tests.harness.drawn import drawn

OBSERVER = "observer:bob/cli"


def _shown(data: Any, width: int = 80) -> list[str]:
    return drawn(_draw((data, None)), width).splitlines()


def _facts(lines: list[str]) -> dict[str, str]:
    """What stands beside each title, its lines as one."""
    found: dict[str, str] = {}
    for line in lines:
        title = line[:13].rstrip() or next(reversed(found))
        found[title] = f"{found.get(title, '')} {line[13:].strip()}".strip()
    return found


def _reports(fleet: Fleet, name: str) -> None:
    report = m.Finished(
        id=fleet.new_id(), session="s", instance="i", job_id=fleet.job().job_id, attempt=7,
        artifact_id=HEX, size_bytes=9,
    )  # fmt: skip
    fleet.handle(Incoming(fleet.topics.response(name), m.encode(report)))


def test_what_was_refused_is_counted_in_words_and_leads_to_where_it_is_told() -> None:
    fleet = Fleet(spec())
    fleet.host("pi").joins()
    _reports(fleet, "pi")
    (told,) = [one.text for one in fleet.took(Warn) if "report" in one.text]
    assert told.startswith("refused a report of pi about a job that is not its own")
    data = fleet.asks(m.AskStatus(id="a")).data
    assert _facts(_shown(data))["Refused"] == (
        "1 report about a job that was not its host's; "
        "the coordinator's log has the first of each kind"
    )
    fleet.asks(m.AskDrain(id="d", host="pi"), client=OBSERVER)
    refused = _facts(_shown(fleet.asks(m.AskStatus(id="b")).data))["Refused"]
    assert refused.startswith("1 by a user who may only look; see `fleet events` 1 report about")
    assert any(one.outcome == "refused" for one in fleet.actions), "the events have it"
    fleet.asks(m.AskDrain(id="e", host="pi"), client=OBSERVER)
    _reports(fleet, "pi")
    refused = _facts(_shown(fleet.asks(m.AskStatus(id="c")).data))["Refused"]
    assert refused.startswith("2 by users who may only look; see `fleet events` 2 reports about")


def test_every_fact_goes_on_beside_its_title() -> None:
    data: Any = Fleet(spec()).asks(m.AskStatus(id="a")).data
    data["dropped"] = dict.fromkeys(("heartbeat", "capability", "job/progress", "unknown"), 10)
    data["refused"] = {"rights": 1, "signature": 2, "expired": 3, "report": 4, "revoked": 5}
    data["broker"]["refused"] = {"subscribe": 1, "publish": 2, "tls": 3, "nobody": 4}
    lines = _shown(data, 60)
    found = _facts(lines)
    assert max(map(len, lines)) <= 60
    assert [*found][-3:] == ["Dropped", "Refused", "By broker"]
    assert found["By broker"] == (
        "1 subscribing to what it may not read, 2 publishing where they may not, "
        "3 without a certificate of the fleet, 4 with names that are nobody's; its log tells more"
    )
    at = lines.index(next(line for line in lines if line.startswith("Dropped")))
    assert all(line[:13].isspace() for line in lines[at:] if line[:1] == " ")


def test_pending_jobs_that_the_manifest_has_not_are_told_apart() -> None:
    """`fleet status` counts them as pending, though they will never run."""
    fleet = Fleet(spec("old"), spec("kept"))
    fleet.plan(spec("kept"))
    data = fleet.asks(m.AskStatus(id="s")).data
    assert (data["jobs"]["pending"], data["orphaned"]) == (2, 1)
    assert "1 pending no longer in the manifest" in drawn(_draw((data, None)))
    fleet.plan(spec("kept"), spec("old"))
    assert fleet.asks(m.AskStatus(id="t")).data["orphaned"] == 0
