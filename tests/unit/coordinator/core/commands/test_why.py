"""What `fleet why` says of a job and of the hosts that do not take it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.cli.why import _advice
from coordinator.jobs.in_words import summary
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
        ("min_cores", 1, 1), ("online", 1, 0), ("free", 1, 0)
    ]  # fmt: skip
    offline = {"code": "offline", "presence": "asleep"}
    assert why["clauses"][1]["how"] == [{"reason": offline, "hosts": 1}]
    (less,) = why["remedies"]
    assert (less["key"], less["needed"], less["most"], less["hosts"]) == ("min_cores", 8, 4, ["pi"])


@pytest.mark.parametrize(
    ("error", "lost", "first"),
    [
        ("CUDA out of memory", False, "it ran out of memory"),
        ("killed by signal 9, perhaps for want of memory", False, "if it ran out of memory"),
        ("lost 3 times, the last time on pi: …", True, "its hosts went away"),
        ("exit code 1", False, "`fleet logs job`"),
    ],
)
def test_a_failed_job_has_a_next_step(error: str, first: str, *, lost: bool) -> None:
    data = {"state": "failed", "name": "job", "error": error, "was_lost": lost}
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
    assert "none of 1500 known hosts" in summary(answer)


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
    assert summary(why).endswith("lifts it, but the only known host cannot take it even then")
    (remedy,) = why["remedies"]
    assert remedy["key"] == "min_ram_gib"
    assert "paused" in [one["code"] for one in why["hosts"][0]["reasons"]]
    fleet.host("pc").joins()
    why = fleet.why()
    assert summary(why).endswith("but none of 2 known hosts can take it even then")
    fleet.plan(spec())
    why = fleet.why()
    assert summary(why).endswith("`fleet pause --off` lifts it")


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
    said = summary(fleet.why())
    assert said.startswith(f"it failed: {error}{remedy}")
    assert said.count("requeue") == 1


def test_what_no_waiting_ends_comes_first_and_is_not_told_as_passing() -> None:
    """`now` where waiting helps alone; a busy slot is the least of a host without CUDA."""
    fleet, pi = joined(spec("first", priority=1), spec("second"), spec("gru", require_cuda=True))
    pi.runs("first")
    never = fleet.why("gru")
    assert summary(never) == "the only known host cannot take it"
    (host,) = never["hosts"]
    assert [one["code"] for one in host["reasons"]] == ["no-cuda", "busy"]
    soon = fleet.why("second")
    assert summary(soon) == "the only known host cannot take it now"
