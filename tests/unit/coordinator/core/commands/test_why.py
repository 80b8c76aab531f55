"""What `fleet why` says of a job and of the hosts that do not take it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from broker.protocol.topic_table import Kind
from coordinator.cli.why_lines import _advice
from coordinator.core.effects import Tick
from tests.harness.coordinator import OPERATOR, Fleet, joined, spec


def test_why_tells_how_the_hosts_are() -> None:
    """A host that is asleep counts as such, and the clauses leave fewer and fewer."""
    fleet, _ = joined(spec(min_cores=8))
    laptop = fleet.host("laptop").joins(physical_cores=8, battery=True)
    laptop.runs()
    fleet.plan(spec(min_cores=8), spec("other", min_cores=8))
    fleet.passes(90.0)
    laptop.status("offline", "lost")
    why = fleet.why("other")
    assert why["suitable"] == {"asleep": ["laptop"]}
    assert [(one["clause"], one["against"], one["left"]) for one in why["clauses"]] == [
        ("min_cores", 1, 1), ("online", 1, 0), ("free", 1, 0)
    ]  # fmt: skip
    offline = {"code": "offline", "presence": "asleep"}
    assert why["clauses"][1]["how"] == [{"reason": offline, "hosts": 1}]
    (less,) = why["remedies"]
    assert (less["key"], less["needed"], less["most"], less["hosts"]) == ("min_cores", 8, 4, ["pi"])


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("out_of_memory", "it ran out of memory"),
        ("killed", "if it ran out of memory"),
        ("lost", "its hosts went away"),
        (None, "`fleet logs job`"),
    ],
)
def test_a_failed_job_has_a_next_step(kind: str | None, first: str) -> None:
    """By the kind of its error alone, whatever its text says."""
    error = "bad_input: lost for want of memory"
    data = {"state": "failed", "name": "job", "error": error, "error_kind": kind}
    found = _advice(data)
    assert found[0].startswith(first)
    assert not any("requeue" in text for text in found), "the summary has said so"
    assert _advice(data | {"state": "running"}) == []


def test_why_answers_for_any_number_of_hosts() -> None:
    """A broker, or a client, would not take more; those with the least against them are named."""
    fleet = Fleet()
    for number in range(1500):
        name = f"{number:04}-{'x' * 55}"
        fleet.host(name).joins(physical_cores=2, data_id=None if number % 10 else "d")
    fleet.plan(spec(min_cores=8))
    (answer, payload) = answered(fleet, m.AskWhy(id="w", job="job"))
    assert len(payload) < 200_000
    named = answer["hosts"]
    assert answer["known"] == 1500 > len(named) > 150
    assert [host["host"] for host in named] == sorted(host["host"] for host in named)
    assert sum(len(host["reasons"]) == 1 for host in named) == 150, "they lack cores alone"
    assert answer["hopeless"]


def test_hosts_that_would_suit_are_counted_though_not_all_are_named() -> None:
    fleet = Fleet()
    for number in range(150):
        fleet.host(f"h{number:03}").joins(ram_available_bytes=1)
    for host in [fleet.host(f"h{number:03}") for number in range(150)]:
        host.session, host.instance = f"s-{host.name}", f"i-{host.name}"
        host.status("offline", "lost")
    fleet.plan(spec())
    answer, _ = answered(fleet, m.AskWhy(id="w", job="job"))
    assert answer["suit"] == {"cut-off": 150}
    assert len(answer["suitable"]["cut-off"]) == 100


def answered(fleet: Fleet, ask: Any) -> tuple[Any, bytes]:
    """The data of an answer, and the answer as it goes over the wire."""
    response = fleet.asks(ask)
    return response.data, m.encode(response)


def test_while_the_fleet_is_paused_a_job_that_nobody_can_run_is_told_so() -> None:
    """To end the pause would not help it: what would is told as if the fleet went on."""
    fleet, _ = joined()
    assert fleet.asks(m.AskPause(id="pause")).ok
    fleet.plan(spec(min_ram_gib=900))
    why = fleet.why()
    assert (why["paused"]["code"], why["in_time"], why["known"]) == ("paused", False, 1)
    (remedy,) = why["remedies"]
    assert remedy["key"] == "min_ram_gib"
    assert "paused" in [one["code"] for one in why["hosts"][0]["reasons"]]
    fleet.host("pc").joins()
    why = fleet.why()
    assert (why["in_time"], why["known"]) == (False, 2)
    fleet.plan(spec())
    why = fleet.why()
    assert why["in_time"]


@pytest.mark.parametrize("kind", [None, "bad_input"])
def test_why_tells_the_kind_of_the_error_whatever_its_text_is(kind: str | None) -> None:
    fleet, pi = joined(spec(retries=0))
    job, about = pi.runs(), {"session": pi.session, "instance": pi.instance}
    failed = m.Failed(
        **about, id="f", job_id=job.job_id, attempt=1, error="bad_input: x", kind=kind
    )
    pi.says(fleet.topics.response("pi"), failed)
    why = fleet.why()
    assert (why["error"], why["error_kind"]) == ("bad_input: x", kind)
    assert fleet.ledger[fleet.job().job_id].error_kind == kind


def test_what_no_waiting_ends_comes_first_and_is_not_told_as_passing() -> None:
    """`now` where waiting helps alone; a busy slot is the least of a host without CUDA."""
    fleet, pi = joined(spec("first", priority=1), spec("second"), spec("gru", require_cuda=True))
    pi.runs("first")
    never = fleet.why("gru")
    assert (never["known"], never["hopeless"]) == (1, True)
    (host,) = never["hosts"]
    assert [one["code"] for one in host["reasons"]] == ["no-cuda", "busy"]
    soon = fleet.why("second")
    assert (soon["known"], soon["hopeless"]) == (1, False)


def test_what_can_be_assigned_is_assigned_before_the_answer() -> None:
    """In a turn in which a slot has come free, nothing speaks against a job for a moment."""
    fleet, pi = joined(spec("first", priority=1), spec("second"), spec("third"))
    job = pi.runs("first")
    failed = m.Failed(
        id="f", session=pi.session, instance=pi.instance, job_id=job.job_id, attempt=1, error="e"
    )
    ask = m.AskWhy(id="w", job="second")
    for topic, said in (
        (fleet.topics.response("pi"), failed), (fleet.topics.operator_request(OPERATOR), ask)
    ):  # fmt: skip
        fleet.core.handle(Incoming(topic, m.encode(said)), fleet.now)
    fleet.handle(Tick())
    (answer,) = (said for topic, said in fleet.sent if topic.kind is Kind.OPERATOR_RESPONSE)
    assert (answer.data["state"], answer.data["host"]) == ("claimed", "pi")
    assert fleet.reasons("third") == ["busy"]
