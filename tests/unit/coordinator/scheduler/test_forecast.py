"""Which host, when, until when; and what is said where nobody can know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.protocol.messages import Why
from broker.protocol.reasons import reason
from coordinator.jobs.plan_entries import JobSpec
from coordinator.jobs.reasons import Wait
from coordinator.scheduler.durations import History
from coordinator.scheduler.feasibility import Against, Waiting
from coordinator.scheduler.forecast import Forecast, forecast
from coordinator.scheduler.play import Held
from coordinator.scheduler.rules import HostView
from coordinator.ui.outlook import grouped
from tests.harness.coordinator import with_id
from tests.unit.coordinator.scheduler.test_durations import ran
from tests.unit.coordinator.scheduler.test_rules import DRAINED, gpu, host, job

REVOKED = reason("revoked", host="c", who="x", at="")
ASLEEP = reason("offline", presence="asleep")

GRACE_S = 300.0
QUIET = {"ram_available_bytes": 2**33, "refuses": (Why(code="quiet"),)}


def named(name: str, priority: int = 0, **needs: Any) -> JobSpec:
    return replace(with_id(job(name, **needs), of=name), priority=priority)


def waits(name: str, created_at: str = "1", **fields: Any) -> Waiting:
    """A pending job; what matchmaking looks at goes to its spec."""
    own = {key: fields.pop(key) for key in ("waited_s", "ready_in_s") if key in fields}
    return Waiting(named(name, **fields), created_at, **own)


def past(*took_s: float, hosts: tuple[str, ...] = ("pi", "gpu")) -> History:
    """Gbt has run so on each host."""
    return History(ran(s, model="gbt", host=name) for name in hosts for s in took_s)


def play(
    *jobs: Waiting, views: list[HostView], held: tuple[Held, ...] = (), known: History | None = None
) -> dict[str, Any]:
    """The outlooks, by the names of the jobs."""
    found = whole(*jobs, views=views, held=held, known=known)
    return {one.spec.name: one for one in found.outlooks.values()}


def whole(
    *jobs: Waiting, views: list[HostView], held: tuple[Held, ...] = (), known: History | None = None
) -> Forecast:
    return forecast(jobs, held, views, known or past(100.0), GRACE_S)


def test_jobs_follow_one_another_in_claim_order() -> None:
    """Priority, then age, then name; each says what it comes after."""
    found = play(
        waits("late", "3"), waits("b", "2"), waits("a", "2"), waits("urgent", "9", priority=1),
        views=[host("pi")],
    )  # fmt: skip
    order = sorted(found, key=lambda name: found[name].start)
    assert order == ["urgent", "a", "b", "late"]
    assert [found[name].start.median_s for name in order] == [0.0, 100.0, 200.0, 300.0]
    assert found["b"].after == found["a"].spec.job_id
    assert (found["urgent"].after, found["late"].ahead) == (None, 3)


def test_a_job_takes_no_less_than_one_of_its_like_has_run_already() -> None:
    """Ten quick epochs elsewhere say little; what runs for longer, with as many epochs, more."""

    def spec(name: str, epochs: int) -> JobSpec:
        return replace(named(name), hyper={"epochs": epochs})

    held = Held(spec("now", 400), "pi", elapsed_s=89.0, eta_s=60.0)
    waiting = [
        Waiting(spec(name, epochs), "1") for name, epochs in (("like", 400), ("short", 10))
    ]  # fmt: skip

    def takes(known: History) -> dict[str, float]:
        found = play(*waiting, views=[host("gpu", slots=2)], held=(held,), known=known)
        return {name: one.end.median_s for name, one in found.items() if name != "now"}

    assert takes(past(18.0, hosts=("lab",))) == {"like": 89.0, "short": 18.0}
    assert takes(past(18.0, hosts=("gpu",))) == {"like": 18.0, "short": 18.0}, "gpu is faster"


def test_progress_of_a_job_that_resumed_counts_from_there() -> None:
    """A fifth of it in 20 s: the rest, a tenth, takes 10 s."""
    held = Held(named("now"), "pi", elapsed_s=20.0, share=0.9, begun=0.7)
    found = play(waits("next"), views=[host("pi")], held=(held,))
    assert found["next"].start.median_s == pytest.approx(10.0)


def test_a_slot_that_is_taken_comes_free_when_history_says_so() -> None:
    """A job that has run for 30 s of its 100; and with two slots there is room already."""
    held = Held(named("now"), "pi", elapsed_s=30.0)
    assert play(waits("next"), views=[host("pi")], held=(held,))["next"].start.median_s == 70.0
    roomy = play(waits("next"), views=[host("pi", slots=2)], held=(held,))
    assert roomy["next"].start.median_s == 0.0
    assert roomy["now"].verdict == "running"
    sent = Held(named("now"), "pi", elapsed_s=30.0, uses_slot=False)
    free = play(waits("next"), views=[host("pi")], held=(sent,))
    assert free["next"].start.median_s == 0.0


def test_the_spread_is_that_of_the_history() -> None:
    """All quick, all at the median, all slow: it adds up along a slot."""
    found = whole(waits("a"), waits("b", "2"), views=[host("pi")], known=past(80, 100, 160))
    assert found.end is not None
    assert found.end.quick_s < 200.0 == found.end.median_s < found.end.slow_s
    assert found.unknown == 0


def test_a_job_that_prefers_cuda_waits_for_its_grace() -> None:
    """It takes the GPU when it comes free in time, and any host afterwards."""
    soon = Held(named("now"), "gpu", elapsed_s=0.0, eta_s=200.0)
    late = Held(named("now"), "gpu", elapsed_s=0.0, eta_s=2000.0)
    views = [host("pi"), host("gpu", gpus=(gpu(),))]
    quick = play(waits("cnn", prefer_cuda=True), views=views, held=(soon,))["cnn"]
    assert (quick.host, quick.start.median_s) == ("gpu", 200.0)
    slow = play(waits("cnn", prefer_cuda=True, waited_s=100.0), views=views, held=(late,))["cnn"]
    assert (slow.host, slow.start.median_s) == ("pi", 200.0)


def test_a_retry_waits_for_its_time() -> None:
    found = play(waits("again", ready_in_s=50.0), waits("other", "2"), views=[host("pi")])
    assert found["other"].start.median_s == 0.0
    assert found["again"].start.median_s == 100.0


def test_a_host_that_refused_a_job_is_given_others_until_it_is_asked_again() -> None:
    """The job goes to who is free, and waits where there is nobody else."""
    mine = replace(waits("mine"), refused=(("gpu", 40.0),))
    found = play(mine, waits("other", "2"), views=[host("gpu"), host("pi")])
    assert (found["mine"].host, found["other"].host) == ("pi", "gpu")
    alone = play(mine, views=[host("gpu")])["mine"]
    assert (alone.host, alone.start.median_s) == ("gpu", 40.0)


def test_a_host_that_could_not_use_what_a_job_needs_is_promised_no_start() -> None:
    """It may be tried there again, but the job is expected elsewhere, or nowhere."""
    why = reason("program", fault={"code": "not-installed"})
    mine = replace(waits("mine"), unusable=(("gpu", why),))
    found = play(mine, waits("other", "2"), views=[host("gpu"), host("pi")])
    assert (found["mine"].host, found["other"].host) == ("pi", "gpu")
    found = play(mine, waits("other", "2"), views=[host("gpu")])
    alone, other = found["mine"], found["other"]
    assert (alone.verdict, alone.start, alone.awaited) == ("absent", None, ("gpu",))
    assert alone.against == (Against((why,), host="gpu"),)
    assert (other.host, other.start.median_s) == ("gpu", 0.0)


def test_hosts_that_are_away_are_given_nothing() -> None:
    """Who needs one of them waits for its return, which nobody can foresee."""
    views = [
        host("pi"), host("gpu", gpus=(gpu(),), online=False, presence="asleep"),
        host("quiet", gpus=(gpu(),), beat=QUIET),
    ]  # fmt: skip
    found = play(waits("cnn", require_cuda=True), waits("gbt"), views=views)
    assert found["gbt"].host == "pi"
    assert (found["cnn"].verdict, found["cnn"].end) == ("absent", None)
    assert play(waits("cnn"), views=[])["cnn"].verdict == "stuck", "no host is known"
    assert found["cnn"].against == (
        Against((ASLEEP,), host="gpu"),
        Against((reason("refuses", holds=[{"code": "quiet"}]),), host="quiet"),
    )  # fmt: skip


@pytest.mark.words
def test_what_is_against_several_hosts_alike_is_said_once() -> None:
    views = [
        host("a", data=None), host("b", data=None, online=False, presence="asleep"),
        host("c", data=None), host("d", data=None, restraints=(DRAINED,)),
    ]  # fmt: skip
    ((text, _),) = grouped(play(waits("gbt"), views=views).values())
    assert [one.partition(": ")[0] for one in text.split("; ") if ": " in one] == ["a, c", "b", "d"]


def test_a_job_waits_for_what_it_may_have_soonest() -> None:
    """A host that takes none now, then one that is away, then data, then a drained one."""
    drained = host("drained", restraints=(DRAINED,))
    bare = host("bare", data=None)
    away = host("away", online=False, presence="asleep", data=None)
    back = host("back", online=False, presence="asleep")
    quiet = host("quiet", beat=QUIET)
    for views, awaits, hosts in (
        ([drained], Wait.RESUME, ("drained",)),
        ([drained, bare, away], Wait.DATA, ("bare", "away")),
        ([drained, bare, back], Wait.RETURN, ("back",)),
        ([drained, bare, back, quiet], Wait.QUIET, ("quiet",)),
    ):
        found = play(waits("gbt"), views=views)["gbt"]
        assert (found.verdict, found.awaits, found.awaited) == ("absent", awaits, hosts)


@pytest.mark.parametrize(
    ("views", "verdict", "against"),
    [
        ([host("a"), host("c", gpus=(gpu(),), restraints=(DRAINED,))],
         "absent", [Against((DRAINED,), host="c")]),
        ([host("c", gpus=(gpu(),), restraints=(DRAINED,), online=False, presence="asleep")],
         "absent", [Against((ASLEEP, DRAINED), host="c")]),
        ([host("a"), host("c", gpus=(gpu(),), restraints=(REVOKED,), online=False)],
         "stuck", [Against((reason("no-cuda"),)), Against((REVOKED,))]),
        ([host("a"), host("b", restraints=(DRAINED,)), host("c", data=None)],
         "stuck", [Against((reason("no-cuda"),), 3)]),
    ],
    ids=["drained", "drained and asleep", "revoked", "no host has CUDA"],
)  # fmt: skip
def test_a_job_that_nobody_can_run_now_waits_or_is_stuck_and_says_why(
    views: list[HostView], verdict: str, against: list[Against]
) -> None:
    """Stuck by what would not pass by itself, most frequent first; a drain can be lifted."""
    found = play(waits("cnn", require_cuda=True), views=views)["cnn"]
    assert (found.verdict, [*found.against]) == (verdict, against)


def test_memory_that_our_own_jobs_use_comes_back() -> None:
    """What others use may stay used for ever."""
    full = {"ram_available_bytes": 2**30}
    busy = Held(named("now"), "pi", elapsed_s=0.0, eta_s=40.0)
    views = [host("pi", slots=2, beat=full)]
    found = play(waits("big", min_ram_gib=8), views=views, held=(busy,))["big"]
    assert (found.verdict, found.start.median_s) == ("starts", 40.0)
    alone = play(waits("big", min_ram_gib=8), views=views)["big"]
    assert alone.verdict == "absent"
    assert [one.code for one in alone.against[0].reasons] == ["ram-now"]


def test_nobody_knows_what_comes_after_the_unknown() -> None:
    """A model that was never completed has no end, and its slot none either; another slot has."""
    known = History([ran(100.0, model="gbt", host="pi"), ran(60.0, model="gbt", host="other")])
    odd = Held(named("odd"), "pi", elapsed_s=0.0)
    object.__setattr__(odd.spec, "model", "mlp")
    found = whole(
        waits("after", allowed=("pi",)), waits("beside", allowed=("other",)),
        views=[host("pi"), host("other")], held=(odd,), known=known,
    )  # fmt: skip
    by_name = {one.spec.name: one for one in found.outlooks.values()}
    assert by_name["after"].vague
    assert not by_name["after"].ends_known
    assert by_name["beside"].ends_known
    assert found.end is not None
    assert found.end.median_s == 60.0, "as far as it is known"
    assert found.unknown == 2


def test_a_slot_whose_job_is_overdue_comes_free_nobody_knows_when() -> None:
    """However near its stand-in is; and so does the memory that the job uses."""
    late = Held(named("late"), "pi", elapsed_s=110.0)
    found = whole(waits("next"), views=[host("pi")], held=(late,))
    by_name = {one.spec.name: one for one in found.outlooks.values()}
    assert by_name["next"].vague
    assert by_name["next"].after == late.spec.job_id
    assert not by_name["late"].ends_known
    assert (found.end, found.unknown) == (None, 2)
    full = [host("pi", slots=2, beat={"ram_available_bytes": 2**30})]
    big = play(waits("big", min_ram_gib=8), views=full, held=(late,))["big"]
    assert (big.vague, big.after) == (True, late.spec.job_id)


def test_patterns_over_names_are_heeded() -> None:
    """Two jobs that differ in nothing but their names may go to different hosts."""
    views = [host("pi", policy={"deny_jobs": ("big*",)}), host("pc")]
    found = play(waits("big-1"), waits("big-2", "2"), waits("small", "3"), views=views)
    assert found["big-1"].host == found["big-2"].host == "pc"
    assert found["small"].host == "pi"
