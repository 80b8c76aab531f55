"""Why a job waits, clause by clause, and what would have to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator.jobs.in_words import clause, remedy
from coordinator.jobs.plan_entries import JobSpec
from coordinator.jobs.reasons import reason
from coordinator.scheduler import explanation
from coordinator.scheduler.rules import HostView, reasons
from tests.unit.coordinator.scheduler.test_rules import DRAINED, gpu, host, job

GRACE_S = 300.0


def explained(one: JobSpec, *views: HostView) -> Any:
    """Each host with what speaks against it."""
    return [(view, reasons(one, view, 0.0, GRACE_S)) for view in views]


def table(one: JobSpec, *views: HostView) -> dict[str, tuple[int, int, str]]:
    """Clause → how many it rules out, how many are left, which, in words."""
    found = explanation.clauses(one, explained(one, *views))
    return {told["clause"]: (told["against"], told["left"], clause(told)[1]) for told in found}


def remedies(one: JobSpec, *views: HostView) -> list[str]:
    """What would open a host to it, in words."""
    return [*map(remedy, explanation.remedies(one, explained(one, *views), GRACE_S))]


BIG = host("big", gpus=(gpu(20, 24),))
SMALL = host("small", gpus=(gpu(10, 12),))
PI = host("pi")


def test_each_clause_tells_how_many_hosts_it_leaves() -> None:
    """Counted by itself, and together with all before it."""
    one = job(require_cuda=True, min_vram_gib=16.0)
    asleep = host("lap", gpus=(gpu(20, 24),), online=False, presence="asleep")
    busy = host("big", gpus=(gpu(20, 24),), busy=1)
    assert table(one, PI, SMALL, busy, asleep) == {
        "require_cuda": (1, 3, "pi"),
        "min_vram_gib": (1, 2, "small"),
        "online": (1, 1, "1 asleep"),
        "free": (1, 0, "big"),
    }


def test_quiet_hours_are_told_in_the_hosts_own_words() -> None:
    """Which come with its heartbeat."""
    quiet = host(beat={"ram_available_bytes": 2**33, "refuses": "quiet hours until 07:00"})
    assert table(job(), quiet) == {"takes": (1, 0, "1 quiet hours until 07:00")}
    assert explanation.suitable(explained(job(), quiet)) == {"quiet": ["pi"]}


def test_who_would_suit_it_is_told_by_what_holds_it_up() -> None:
    """Hosts that are asleep count as such, and those that can never take it do not."""
    one = job(require_cuda=True)
    views = [
        PI, host("b", gpus=(gpu(),), busy=1),
        host("s", gpus=(gpu(),), online=False, presence="asleep"),
        host("now", gpus=(gpu(),)),
    ]  # fmt: skip
    found = explanation.suitable(explained(one, *views))
    assert found == {"busy": ["b"], "asleep": ["s"], "now": ["now"]}


def test_a_number_is_lowered_to_what_the_best_host_has() -> None:
    """To what is free now, and how much there is in all is told."""
    less = "if min_vram_gib were 20 (free now, of 24 in all) instead of 48, big could take it"
    assert less in remedies(job(require_cuda=True, min_vram_gib=48.0), PI, SMALL, BIG)
    assert remedies(job(min_ram_gib=20.0), PI) == [
        "if min_ram_gib were 6 (free now, of 16 in all) instead of 20, pi could take it"
    ]
    assert remedies(job(min_ram_gib=20.0), host(ram_gib=16)) == [
        "if min_ram_gib were 16 instead of 20, pi could take it"
    ]
    assert remedies(job(min_ram_gib=20.0), host(ram_gib=0.01)) == [
        "if min_ram_gib were 16 (all of it in use now) instead of 20, pi could take it"
    ]
    assert remedies(job(min_cores=9), PI) == [
        "if min_cores were 4 instead of 9, pi could take it"
    ]  # fmt: skip


def test_one_change_at_a_time() -> None:
    """What needs two is no remedy; then the nearest host is named with what it lacks."""
    one = job(require_cuda=True, min_cores=9)
    assert remedies(one, PI) == []
    told = explanation.nearest(explained(one, PI))
    assert told is not None
    assert (told["hosts"], [one["code"] for one in told["reasons"]]) == (
        ["pi"],
        ["no-cuda", "cores"],
    )
    assert "the nearest is pi: needs CUDA; this host has none; needs 9 cores" in remedy(told)
    assert remedies(job(require_cuda=True), PI) == [
        "if it did not say require_cuda, pi could take it"
    ]


def test_what_the_operator_has_closed_can_be_opened() -> None:
    """Drains, lists of hosts, and what the manifest says of a host."""
    drained = host("d", restraints=(DRAINED,))
    assert remedies(job(), drained) == ["after `fleet resume d`, d could take it"]
    gone = reason("revoked", host="r", who="x", at="")
    revoked = host("r", restraints=(gone,), online=False, presence="revoked")
    assert remedies(job(), revoked) == ["after `fleet enroll r --replace`, r could take it"]
    assert remedies(job(), replace(revoked, restraints=(gone, DRAINED))) == [], "no single change"
    assert remedies(job(allowed=("other",)), PI) == [
        "if its allowed_hosts had pi, pi could take it"
    ]
    assert remedies(job(denied=("pi",)), PI) == ["if its denied_hosts had not pi, pi could take it"]
    off = host("g", gpus=(gpu(),), policy={"cuda": False})
    assert remedies(job(require_cuda=True), off)[-1] == (
        "if [hosts.g] did not say cuda = false, g could take it"
    )
    closed = host("g", policy={"allow_jobs": ("cnn*",)})
    assert remedies(job(), closed) == [
        'if [hosts.g] did not say allow_jobs = ["cnn*"], g could take it'
    ]
    assert remedies(job(), host("bare", data=None)) == [
        "with prepared data (--data, or that folder mounted again), bare could take it"
    ]


def test_hosts_that_are_open_need_no_remedy() -> None:
    """Busy or asleep is no obstacle for good, and many hosts are told briefly."""
    assert remedies(job(), host(busy=1), host("b", online=False)) == []
    many = [host(f"h{number}") for number in range(9)]
    assert remedies(job(require_cuda=True), *many) == [
        "if it did not say require_cuda, h0, h1 and 7 more could take it"
    ]
