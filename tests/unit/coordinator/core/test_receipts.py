"""A ledger that was restored takes the work that it gave out before, and nobody else's word."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.core.receipts import receipt
from tests.harness.agent import Agent
from tests.harness.coordinator import Fleet, Host, spec


def restored(**settings: Any) -> tuple[Fleet, Host, m.Assign]:
    """A job was given to `pi` twice; then the ledger is the one of before."""
    fleet = Fleet(spec(), **settings)
    copy = dict(fleet.ledger)
    pi = fleet.host().joins()
    first = pi.refuses()
    fleet.passes(60)
    pi.beats()
    assign = pi.heard(m.Assign)[-1]
    assert (first.attempt, assign.attempt) == (1, 2)
    fleet.ledger.clear()
    fleet.ledger.update(copy)
    fleet.history.clear()
    fleet.start()
    return fleet, pi, assign


def test_a_restored_ledger_takes_what_it_gave_out_before() -> None:
    """J1: with the receipt of the assignment a host may speak for an attempt ahead of the ledger's.

    The job's history says so.
    """
    fleet, pi, assign = restored()
    assert fleet.job().attempt == 0
    pi.status("online", "birth")
    pi.brings_home(fleet.job(), 2, assign.receipt)
    assert (fleet.job().state, fleet.job().attempt, fleet.job().host) == ("completed", 2, "pi")
    assert [word for _, word in fleet.history] == ["restored", "resumed", "completed"]


def test_a_heartbeat_brings_a_job_back_to_its_host() -> None:
    """It goes on; nobody else is given the job meanwhile."""
    fleet, pi, assign = restored()
    held = m.HeldJob(job_id=assign.job_id, attempt=2, phase="running", receipt=assign.receipt)
    pi.status("online", "birth")
    pi.beats(held)
    assert (fleet.job().state, fleet.job().attempt, fleet.job().host) == ("running", 2, "pi")
    assert fleet.host("other").joins().heard(m.Assign) == []


FOREIGN = receipt(b"another key", "pi", spec().job_id, 2)


@pytest.mark.parametrize(
    ("who", "attempt", "said", "settings"),
    [
        ("pi", 2, "", {}), ("pi", 3, None, {}), ("pi", 1, None, {}), ("mallory", 2, None, {}),
        ("pi", 2, "0" * 32, {}), ("pi", 2, FOREIGN, {}), ("pi", 2, None, {"receipt_key": b""}),
    ],
    ids=["none", "of another attempt", "of a later attempt", "another host's", "made up",
         "another coordinator's", "of a coordinator without a key"],
)  # fmt: skip
def test_no_other_word_is_taken(who: str, attempt: int, said: str | None, settings: Any) -> None:
    """A host with rights for its own topics alone cannot finish a job that it was never given."""
    fleet, _, assign = restored(**settings)
    before = str(fleet.ledger)
    evil = fleet.host(who)
    shown = assign.receipt if said is None else said
    assert evil.finishes(fleet.job(), attempt, shown) == "superseded"
    evil.uploads()
    assert str(fleet.ledger) == before
    assert not fleet.core.world.uploads
    assert fleet.status()["refused"] == {"report": 1}


def test_who_was_given_the_job_since_keeps_it() -> None:
    """A receipt is no right to a job that somebody else has by now."""
    fleet, pi, assign = restored()
    other = fleet.host("other").joins()
    other.runs()
    assert pi.finishes(fleet.job(), 2, assign.receipt) == "superseded"
    assert fleet.job().host == "other"


def test_an_agent_shows_the_receipt_in_all_that_it_says_of_a_job() -> None:
    agent = Agent()
    agent.runs(2, receipt="ab" * 16)
    finished = agent.finishes(2)
    said = [one for _, one in agent.sent if hasattr(one, "receipt")] + [finished]
    assert {one.receipt for one in said} == {"ab" * 16}
    assert {type(one) for one in said} == {m.Accepted, m.Started, m.Finished}
    agent.passes(31)
    assert {held.receipt for held in agent.said(m.Heartbeat)[-1].jobs} == {"ab" * 16}
    again = Agent(finished)
    assert again.said(m.Finished)[0].receipt == "ab" * 16
    failing = Agent()
    failing.runs(receipt="cd" * 16)
    failing.ends(1)
    assert failing.said(m.Failed)[0].receipt == "cd" * 16
