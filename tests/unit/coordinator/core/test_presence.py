"""What the core makes of hosts: births, heartbeats, silence, what they report and hand over."""

from __future__ import annotations

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected, Incoming
from coordinator.core.stopping import MAX_STOPS
from tests.harness.coordinator import Fleet, Host, joined, running, spec


def test_a_host_that_comes_back_in_time_goes_on() -> None:
    """J6: nobody else has been given the job meanwhile, so its work counts."""
    fleet, pi, job = running(stale_after_s=100.0)
    pi.status("offline", "lost")
    fleet.passes(150)
    assert fleet.job().state == "pending"
    pi.session = "s-2"
    pi.status("online", "birth")
    pi.beats((job.job_id, 1, "running"))
    assert (fleet.job().state, fleet.job().attempt) == ("running", 1)
    assert fleet.history[-1] == ("job", "resumed")


def test_a_host_that_comes_back_is_asked_again_at_once() -> None:
    """It may have missed the assignment, and the next repetition may be seconds away."""
    fleet, pi = joined(spec())
    fleet.passes(10)
    asked = {one.id for one in pi.heard(m.Assign)}
    pi.status("offline", "lost")
    pi.returns()
    fleet.passes(0)
    assert {one.id for one in pi.heard(m.Assign)} == asked


def test_a_job_that_is_lost_too_often_fails() -> None:
    fleet, pi = joined(spec(), stale_after_s=50.0, max_attempts=2)
    for _ in range(2):
        pi.runs()
        fleet.passes(49)
        pi.beats()
        fleet.passes(10)
    assert fleet.job().state == "failed"
    assert "lost 2 times" in str(fleet.job().error)
    fleet.asks(m.AskRequeue(id="q", job="job"))
    assert fleet.job().losses == 0


def _two_run() -> tuple[Fleet, Host]:
    """`pi` runs jobs a and b."""
    fleet = Fleet(spec("a"), spec("b"))
    pi = fleet.host().joins(slots=2)
    for assign in pi.heard(m.Assign):
        pi.reports(m.Accepted, fleet.ledger[assign.job_id], request_id=assign.id)
        pi.reports(m.Started, fleet.ledger[assign.job_id], slot=0, pid=1)
    return fleet, pi


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_goodbye_gives_back_what_ran_but_not_what_is_finished(*, is_heard: bool) -> None:
    """P3: a finished bundle waits in the spool and is still wanted.

    So it is where no coordinator has heard the report; of an older attempt nothing is wanted.
    """
    fleet, pi = _two_run()
    if is_heard:
        assert pi.finishes(fleet.job("a")) == "wanted"
        pi.status("offline", "goodbye")
    else:
        attempts = {fleet.job("a").job_id: 1, fleet.job("b").job_id: 7}
        owes = [m.OwedResult(job_id=one, attempt=at) for one, at in attempts.items()]
        pi.status("offline", "goodbye", owes=owes)
    assert fleet.job("a").state == "running"
    assert (fleet.job("b").state, fleet.job("b").losses) == ("pending", 0)


def test_a_late_will_of_an_old_session_changes_nothing() -> None:
    """P2."""
    fleet, pi = joined()
    pi.returns()
    pi.status("offline", "lost", session="s-pi")
    assert fleet.core.world.hosts["pi"].online
    pi.status("offline", "lost")
    assert not fleet.core.world.hosts["pi"].online


@pytest.mark.parametrize("says", ["nothing", "that all are lost", "so, and retains it"])
def test_no_host_is_away_because_the_broker_is(says: str) -> None:
    """However long that lasts, and whatever a broker says of its clients as it ends."""
    fleet, pi = joined()
    if says != "nothing":
        pi.status("offline", "lost")
    fleet.handle(Disconnected("refused", False))
    fleet.passes(3 * fleet.settings.host_timeout_s)
    fleet.handle(Connected("again"))
    if says == "so, and retains it":
        lost = m.Status(state="offline", reason="lost", session=pi.session,
                        instance=pi.instance, boot_id=pi.boot_id)  # fmt: skip
        fleet.handle(Incoming(fleet.topics.status("pi"), m.encode(lost), retained=True))

    def told() -> str:
        (row,) = fleet.asks(m.AskWorkers(id=fleet.new_id())).data["workers"]
        return str(row["condition"])

    assert told() == "online"
    fleet.passes(fleet.settings.host_timeout_s + 1.0)
    assert told() == "silent", "it has not come back since"


def test_thousands_of_hosts_keep_the_schemas_of_their_trainers_once() -> None:
    """Those of one release are the same on every host, and large; another set is another's."""
    fleet = Fleet()
    schema = {"type": "object", "properties": {"lr": {"type": "number", "maximum": 1}}}
    for number in range(3):
        trainers = {"gbt": m.TrainerInfo(hyper_schema=schema)}
        fleet.host(f"pi-{number}").joins(trainers=trainers, physical_cores=number + 1)
    fleet.host("odd").joins(trainers={"gbt": m.TrainerInfo(hyper_schema={})})
    said = {name: host.capability for name, host in fleet.core.world.hosts.items()}
    assert len({id(said[f"pi-{number}"].trainers) for number in range(3)}) == 1  # type: ignore[union-attr]
    assert [one.physical_cores for one in said.values() if one] == [1, 2, 3, 4]
    assert said["pi-2"].trainers["gbt"].hyper_schema == schema  # type: ignore[union-attr]
    assert said["odd"].trainers["gbt"].hyper_schema == {}  # type: ignore[union-attr]


def test_a_host_that_lists_ever_new_jobs_is_told_of_so_many_at_a_time() -> None:
    """Each is told until it is answered: nobody fills the memory with jobs that there are not."""
    fleet, pi = joined(spec())
    ids = iter(range(1_000_000))
    for _ in range(20):
        pi.beats(*((f"{next(ids):064x}", 1, "running") for _ in range(m.MAX_LISTED)))
    assert len({one.job_id for one in pi.heard(m.Cancel)}) == MAX_STOPS
    other = fleet.host("other").joins(("f" * 64, 1, "running"))
    assert other.heard(m.Cancel), "whoever else is there is told all the same"
    fleet.passes(120)
    pi.heard(m.Cancel)
    pi.beats(("e" * 64, 1, "running"))
    assert [one.job_id for one in pi.heard(m.Cancel)] == ["e" * 64]
