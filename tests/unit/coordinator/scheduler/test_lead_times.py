"""What a host does before a trainer starts, and what that does to a forecast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.protocol.messages import Dataset, Program, ProgramsAllowed
from coordinator.jobs.plan_entries import JobSpec
from coordinator.scheduler.durations import History
from coordinator.scheduler.feasibility import Waiting
from coordinator.scheduler.forecast import Outlook, forecast
from coordinator.scheduler.lead_times import USUAL_BYTES_PER_S, Lead
from coordinator.scheduler.play import Held
from coordinator.scheduler.rules import HostView, choose
from coordinator.ui.outlook import basis, to_dict
from tests.unit.coordinator.core.commands.test_prospects import NOON
from tests.unit.coordinator.scheduler.test_durations import ran
from tests.unit.coordinator.scheduler.test_forecast import named
from tests.unit.coordinator.scheduler.test_rules import host

PARCEL, DATA = "a1" * 32, "d1" * 32
MB = 10**6
ALLOWED = ProgramsAllowed(unsigned=True, environments=("none", "uv"))


def spec(name: str = "job", environment: str = "uv", data_mb: int = 600) -> JobSpec:
    """A job of a program of 1 MB, with a dataset."""
    program = Program.model_validate(
        {"digest": PARCEL, "size_bytes": MB, "environment": environment}
    )
    data = Dataset(name="d", digest=DATA, size_bytes=data_mb * MB, layout=DATA, layout_bytes=1)
    return replace(named(name), model="fit", program=program, data=(data,))


def holds(name: str, *holdings: str, slots: int = 1) -> HostView:
    """A host that lets the program in and holds these."""
    view = host(name, slots=slots)
    told = {"programs": ALLOWED, "holdings": holdings}
    return replace(view, capability=view.capability.model_copy(update=told))


def run(s: float = 100.0, on: str = "pi", **lead: Any) -> dict[str, Any]:
    """A completed attempt of the program."""
    return ran(s, model="fit", host=on) | lead


def play(
    *views: HostView, held: tuple[Held, ...] = (), jobs: int = 1, **lead: Any
) -> list[Outlook]:
    """What is to be expected of jobs, after an attempt on each host."""
    past = History(run(on=view.host, **lead) for view in views)
    waiting = [Waiting(spec(f"{number}"), str(number)) for number in range(jobs)]
    return [*forecast(waiting, held, views, past, 300.0).outlooks.values()]


def test_a_transfer_takes_its_bytes_by_the_rate_of_its_host() -> None:
    """Small transfers say nothing of the rate; where nothing was measured, it is the usual one."""
    past = History([run(fetched_bytes=MB, fetch_s=60.0), run(fetched_bytes=200 * MB, fetch_s=10.0)])
    assert past.leads.of(spec("none", "none"), holds("pi")) == Lead(601 * MB, 601 * MB / 20e6)
    unknown = past.leads.of(spec(), holds("other"))
    assert unknown.fetch_s == 601 * MB / USUAL_BYTES_PER_S
    assert past.leads.of(spec(), holds("pi", DATA)).lacks_bytes == MB
    assert past.leads.of(spec(), holds("pi", DATA, PARCEL)).then() == (0.0, 0.0, 0.0)


def test_packages_take_what_they_took_where_the_program_is_not_held() -> None:
    """On this host if that is known; later attempts there have found them, which says nothing."""
    took_s = (("pi", 0.1), ("pi", 90.0), ("gpu", 30.0), ("pi", 0.2))
    past = History(run(on=name, prepare_s=s) for name, s in took_s)
    assert past.leads.of(spec(), holds("pi", DATA)).prepare == (90.0, 90.0, 90.0)
    assert past.leads.of(spec(), holds("other")).prepare == (36.0, 60.0, 84.0)
    assert past.leads.of(spec(), holds("pi", PARCEL)).prepare == (0.0, 0.0, 0.0)
    assert past.leads.of(spec("j", "none"), holds("pi")).prepare == (0.0, 0.0, 0.0)
    assert History().leads.of(spec(), holds("pi")).prepare == (0.0, 0.0, 0.0), "nothing is known"


@pytest.mark.words
def test_what_comes_first_is_told_if_it_takes_long() -> None:
    """A parcel alone takes no time to speak of."""
    (one,) = play(holds("pi"), fetched_bytes=20 * MB, fetch_s=2.0, prepare_s=40.0)
    runs = "1 run of fit-oracle here"
    lead = "60 s to fetch 573.2 MiB and 40 s to install its packages"
    assert basis(one) == f"{runs}, after {lead}"
    (one,) = play(holds("pi", DATA))
    assert basis(one) == runs


def test_a_job_starts_before_its_trainer_does() -> None:
    (one,) = play(holds("pi"), fetched_bytes=20 * MB, fetch_s=2.0, prepare_s=39.9)
    assert (one.start, one.end) == ((0.0,) * 3, (pytest.approx(200.0),) * 3)
    told = to_dict(one, NOON, paused=False)
    assert (told["fetches_bytes"], told["lead_s"]["median"]) == (601 * MB, 100.0)


def test_what_a_host_has_fetched_it_does_not_fetch_again() -> None:
    first, second = play(holds("pi"), jobs=2, fetched_bytes=601 * MB, fetch_s=50.0)
    assert (first.end, second.end) == ((150.0,) * 3, (250.0,) * 3)
    assert (first.lead.lacks_bytes, second.lead.lacks_bytes) == (601 * MB, 0)


def test_a_job_that_is_given_out_has_yet_to_begin() -> None:
    """What waits for its slot, waits for that too; a running one has all that it needs."""
    for is_claimed, end_s in ((True, 160.1), (False, 100.0)):
        held = (Held(spec("now"), "pi", is_claimed=is_claimed),)
        now, then = play(holds("pi"), held=held)
        assert now.end == then.start
        assert now.end is not None
        assert now.end.median_s == pytest.approx(end_s)


def test_the_host_that_lacks_less_is_preferred() -> None:
    """All else is equal: without the program or the dataset the first name would win."""
    views = [holds("a"), holds("b", PARCEL), holds("c", DATA)]
    chosen = [choose(spec(), views[:count]) for count in (1, 2, 3)]
    assert [one.host for one in chosen if one] == ["a", "b", "c"]
    first, second = play(holds("a"), holds("b", DATA), jobs=2)
    assert (first.host, second.host) == ("b", "a")
