"""Why a job waits, clause by clause, and what would have to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.protocol import messages as m
from broker.protocol.reasons import reason
from coordinator.jobs.plan_entries import JobSpec
from coordinator.scheduler import explanation
from coordinator.scheduler.rules import HostView, reasons
from tests.harness.programs import program
from tests.unit.coordinator.scheduler.test_rules import DRAINED, carried, gpu, host, job

GRACE_S = 300.0
FIGURES = ("key", "needed", "most", "free", "value")
QUIET = {
    "ram_available_bytes": 2**33,
    "refuses": (m.Why(code="quiet", by="owner", until="2026-05-29T07:00"),),
}


def explained(one: JobSpec, *views: HostView) -> Any:
    """Each host with what speaks against it."""
    return [(view, tuple(reasons(one, view, GRACE_S, GRACE_S))) for view in views]


def table(one: JobSpec, *views: HostView) -> dict[str, tuple[int, int, Any]]:
    """Clause → how many it rules out, how many are left, which or how."""
    found = explanation.clauses(one, explained(one, *views))
    return {
        told["clause"]: (told["against"], told["left"], told["how"] or told["hosts"])
        for told in found
    }


def remedies(one: JobSpec, *views: HostView) -> list[tuple[Any, ...]]:
    """What would open a host to it: the code, its figures, the hosts."""
    found: list[Any] = explanation.remedies(one, explained(one, *views))
    return [
        (told["code"], *(told[key] for key in FIGURES if key in told), told["hosts"])
        for told in found
    ]


def less(key: str, needed: float, most: float | None, free: float | None) -> tuple[Any, ...]:
    """The remedy that lowers a number for `pi`."""
    return ("less", key, needed, most, free, ["pi"])


BIG = host("big", gpus=(gpu(20, 24),))
SMALL = host("small", gpus=(gpu(10, 12),))
PI = host("pi")


def test_each_clause_tells_how_many_hosts_it_leaves() -> None:
    """Counted by itself, and together with all before it."""
    one = job(require_cuda=True, min_vram_gib=16.0)
    asleep = host("lap", gpus=(gpu(20, 24),), online=False, presence="asleep")
    busy = host("big", gpus=(gpu(20, 24),), busy=1)
    assert table(one, PI, SMALL, busy, asleep) == {
        "require_cuda": (1, 3, ["pi"]),
        "min_vram_gib": (1, 2, ["small"]),
        "online": (1, 1, [{"reason": {"code": "offline", "presence": "asleep"}, "hosts": 1}]),
        "free": (1, 0, ["big"]),
    }


def test_quiet_hours_are_told_as_the_host_has_said_them() -> None:
    quiet = host(beat=QUIET)
    holds = [{"code": "quiet", "by": "owner", "until": "2026-05-29T07:00"}]
    how = [{"reason": {"code": "refuses", "holds": holds}, "hosts": 1}]
    assert table(job(), quiet) == {"takes": (1, 0, how)}
    assert explanation.suitable(explained(job(), quiet)) == {"quiet": ["pi"]}


def test_who_would_suit_it_is_told_by_what_holds_it_up() -> None:
    """Hosts that are asleep count as such, and those that can never take it do not."""
    one = job(require_cuda=True)
    views = [
        PI, host("b", gpus=(gpu(),), busy=1),
        host("s", gpus=(gpu(),), online=False, presence="asleep"),
    ]  # fmt: skip
    found = explanation.suitable(explained(one, *views))
    assert found == {"busy": ["b"], "asleep": ["s"]}


def test_a_number_is_lowered_to_what_the_best_host_has() -> None:
    """To what is free now, and how much there is in all is told."""
    found = remedies(job(require_cuda=True, min_vram_gib=48.0), PI, SMALL, BIG)
    assert ("less", "min_vram_gib", 48.0, 24.0, 20.0, ["big"]) in found
    for ram_gib, free in ((6, 6.0), (16, 16.0), (0.01, 0.0)):
        found = remedies(job(min_ram_gib=20.0), host(ram_gib=ram_gib))
        assert found == [less("min_ram_gib", 20.0, 16.0, free)]
    assert remedies(job(min_cores=9), PI) == [less("min_cores", 9, 4, None)]


def test_one_change_at_a_time() -> None:
    """What needs two is no remedy; then the nearest host is named with what it lacks."""
    one = job(require_cuda=True, min_cores=9)
    assert remedies(one, PI) == []
    told = explanation.nearest(explained(one, PI))
    assert told is not None
    assert told["hosts"] == ["pi"]
    assert [one["code"] for one in told["reasons"]] == ["no-cuda", "cores"]
    assert remedies(job(require_cuda=True), PI) == [less("require_cuda", True, None, None)]


def test_the_nearest_host_to_a_program_is_one_that_has_tried_it() -> None:
    """That the owner of another lets no programs in is not what stands in its way."""
    one, allowed = carried(program(signer="ann"), m.ProgramsAllowed(signed_by=("ann",)))
    fault = reason("unusable", fault={"code": "not-installed", "said": "no such package"})
    tried = replace(allowed, unusable={one.program_digest(): fault})
    told = explanation.nearest(explained(one, PI, tried, host("nope")))
    assert told is not None
    assert told["hosts"] == [tried.host]


def test_a_program_needs_an_owner_who_lets_it_in() -> None:
    one, closed = carried(program(signer="ann"), None)
    _, others = carried(program(), m.ProgramsAllowed(signed_by=("bob",)))
    assert remedies(one, closed, others) == [("program", ["pi", "pi"])]
    needy = replace(one, needs=m.Needs(require_cuda=True))
    assert remedies(needy, closed) == [], "that alone is not enough"


def test_what_the_operator_has_closed_can_be_opened() -> None:
    """Drains, lists of hosts, and what the manifest says of a host."""
    drained = host("d", restraints=(DRAINED,))
    assert remedies(job(), drained) == [("resume", ["d"])]
    gone = reason("revoked", host="r", who="x", at="")
    revoked = host("r", restraints=(gone,), online=False, presence="revoked")
    assert remedies(job(), revoked) == [("enroll", ["r"])]
    assert remedies(job(), replace(revoked, restraints=(gone, DRAINED))) == [], "no single change"
    assert remedies(job(allowed=("other",)), PI) == [("hosts", "allowed_hosts", ["pi"])]
    assert remedies(job(denied=("pi",)), PI) == [("hosts", "denied_hosts", ["pi"])]
    off = host("g", gpus=(gpu(),), policy={"cuda": False})
    assert remedies(job(require_cuda=True), off)[-1] == ("policy", "cuda", "false", ["g"])
    closed = host("g", policy={"allow_jobs": ("cnn*",)})
    assert remedies(job(), closed) == [("policy", "allow_jobs", '["cnn*"]', ["g"])]
    assert remedies(job(), host("bare", data=None)) == [("data", ["bare"])]


def test_hosts_that_are_open_need_no_remedy() -> None:
    """Busy or asleep is no obstacle for good, and many hosts are counted."""
    assert remedies(job(), host(busy=1), host("b", online=False)) == []
    many = [host(f"h{number}") for number in range(9)]
    (told,) = explanation.remedies(job(require_cuda=True), explained(job(require_cuda=True), *many))
    assert (told["code"], told["count"], len(told["hosts"])) == ("less", 9, 3)
