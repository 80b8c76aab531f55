"""What `fleet why` says of a job and of the hosts that do not take it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.cli.why import _advice
from tests.harness.coordinator import Fleet, joined, spec


def test_why_tells_how_the_hosts_are() -> None:
    """A host that is asleep counts as such, and the clauses leave fewer and fewer."""
    fleet = Fleet(spec(min_cores=8))
    fleet.host("pi").joins()
    laptop = fleet.host("laptop").joins(physical_cores=8, battery=True)
    laptop.runs()
    fleet.plan(spec(min_cores=8), spec("other", min_cores=8))
    fleet.passes(90.0)
    laptop.status("offline", "lost")
    why = fleet.why("other")
    assert why["suitable"] == {"asleep": ["laptop"]}
    assert [(one["clause"], one["against"], one["left"]) for one in why["clauses"]] == [
        ("min_cores = 8", 1, 1), ("is online", 1, 0), ("has a free slot", 1, 0)
    ]  # fmt: skip
    assert why["clauses"][1]["detail"] == "1 asleep"
    assert why["remedies"] == ["if min_cores were 4 instead of 8, pi could take it"]


@pytest.mark.parametrize(
    ("summary", "first"),
    [
        ("it failed: CUDA out of memory; …", "it ran out of memory"),
        (
            "it failed: … (killed by signal 9, perhaps for want of memory)",
            "if it ran out of memory",
        ),
        ("it failed: lost 3 times, the last time on pi: …", "its hosts went away"),
        ("it failed: exit code 1", "`fleet logs job`"),
    ],
)
def test_a_failed_job_has_a_next_step(summary: str, first: str) -> None:
    found = _advice({"state": "failed", "name": "job", "summary": summary})
    assert found[0].startswith(first)
    assert not any("requeue" in text for text in found), "the summary has said so"
    assert _advice({"state": "running", "name": "job", "summary": ""}) == []


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
    assert "none of 1500 known hosts" in answer["summary"]


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
    fleet = Fleet()
    fleet.host("pi").joins()
    assert fleet.asks(m.AskPause(id="pause")).ok
    fleet.plan(spec(min_ram_gib=900))
    why = fleet.why()
    assert why["summary"].endswith("lifts it, but the only known host cannot take it even then")
    (remedy,) = why["remedies"]
    assert remedy.startswith("if min_ram_gib were ")
    assert "the fleet was paused" in why["hosts"][0]["reasons"][0]
    fleet.host("pc").joins()
    why = fleet.why()
    assert why["summary"].endswith("but none of 2 known hosts can take it even then")
    fleet.plan(spec())
    why = fleet.why()
    assert why["summary"].endswith("`fleet pause --off` lifts it")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("exit code 1", "; `fleet requeue` tries again"),
        ("bad_input: no channel 'x'", "; the same input would fail again: correct the manifest"),
    ],
)
def test_what_helps_a_failed_job_depends_on_why_it_failed(error: str, remedy: str) -> None:
    fleet, pi = joined(spec(retries=0))
    pi.reports(m.Failed, pi.runs(), error=error)
    summary = fleet.why()["summary"]
    assert summary.startswith(f"it failed: {error}{remedy}")
    assert summary.count("requeue") == 1


def test_what_no_waiting_ends_comes_first_and_is_not_told_as_passing() -> None:
    """`now` where waiting helps alone; a busy slot is the least of a host without CUDA."""
    fleet, pi = joined(spec("first", priority=1), spec("second"), spec("gru", require_cuda=True))
    pi.runs("first")
    never = fleet.why("gru")
    assert never["summary"] == "the only known host cannot take it"
    (host,) = never["hosts"]
    assert host["reasons"] == ["needs CUDA; this host has none", "its only slot is busy"]
    soon = fleet.why("second")
    assert soon["summary"] == "the only known host cannot take it now"
