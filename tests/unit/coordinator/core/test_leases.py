"""Leases: nobody else is given a job while its trainer may run. protocol.md, "Leases"."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core import effects as fx
from agent.spool.checkpoints import Checkpoints
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected
from coordinator.core.effects import PartStored, Tick
from coordinator.core.receipts import receipt as receipt_of
from tests.harness.agent import HEX, JOB, Agent, leased
from tests.harness.agent_shell import AgentShell
from tests.harness.coordinator import Fleet, Host, joined, running, spec

OTHER = "6b" * 32


def _running(**settings: float) -> tuple[Fleet, Host, Host]:
    """A fleet of two; `pi` runs the job, `pc` has nothing to do."""
    fleet, pi, job = running(**settings)
    pi.beats((job.job_id, 1, "running"))
    return fleet, pi, fleet.host("pc").joins()


# The agent's side


@pytest.mark.parametrize(
    ("on_lost", "resumable", "stops"),
    [(None, True, True), (None, False, False), ("keep", True, False), ("stop", False, True)],
)
def test_a_trainer_stops_before_its_lease_ends(
    on_lost: str | None, resumable: bool, stops: bool
) -> None:
    """L3: with time for a checkpoint; what cannot resume goes on, unless the job says otherwise."""
    agent = Agent()
    known = agent.core.state.capability
    assert known is not None
    info = m.TrainerInfo(hyper_schema={}, resumable=resumable)
    agent.core.state.capability = known.model_copy(update={"trainers": {"gbt": info}})
    agent.runs(on_lost=on_lost)
    agent.lease_s = None
    agent.handle(Disconnected("gone"))
    agent.passes(575)
    assert not agent.took(fx.SignalTrainer)
    agent.passes(10)
    assert [one.kill for one in agent.took(fx.SignalTrainer)] == ([False] if stops else [])
    agent.passes(15)
    assert [one.kill for one in agent.took(fx.SignalTrainer)] == ([True] if stops else [])


def test_the_end_of_a_connection_changes_no_lease() -> None:
    """L2: as long as the coordinator answers in between, the trainer goes on."""
    agent = Agent()
    agent.runs()
    for number in range(5):
        agent.handle(Disconnected("reset"))
        agent.passes(500)
        agent.handle(Connected(f"again-{number}"))
        agent.passes(31)
    assert not agent.took(fx.SignalTrainer)


def test_a_lease_counts_from_what_the_agent_has_sent() -> None:
    """L1: an answer that was long on its way gives no more time than one that was not."""
    agent = Agent()
    agent.runs()
    agent.lease_s = None
    agent.passes(31)
    beat = agent.said(m.Heartbeat)[-1]
    agent.passes(400)
    jobs = (m.LeasedJob(job_id=JOB, attempt=1),)
    agent.hears(m.Lease(id="l", heard=str(beat.seq), lease_s=600.0, jobs=jobs))
    agent.passes(31 + 600 - 431 - 22)
    assert not agent.took(fx.SignalTrainer)
    agent.passes(22)
    assert agent.took(fx.SignalTrainer)


def test_a_trainer_starts_with_its_lease() -> None:
    """L4: an acceptance that is not answered starts nothing: another may have the job by then."""
    agent = Agent()
    agent.lease_s = None
    agent.assigned()
    assert agent.said(m.Accepted)
    agent.passes(100)
    assert not agent.took(fx.StartTrainer)
    agent.lease_s = 600.0
    agent.passes(31)
    assert agent.took(fx.StartTrainer)


def test_a_machine_that_slept_over_its_lease_kills_the_trainer() -> None:
    """L5: its monotonic clock stood still; there is no time left for a checkpoint."""
    agent = Agent()
    agent.runs()
    agent.lease_s = None
    agent.core.on_suspended(3600.0, agent.now)
    agent.passes(6)
    assert [one.kill for one in agent.took(fx.SignalTrainer)] == [False, True]


def test_a_lease_that_ended_while_the_machine_slept_starts_no_trainer(tmp_path: Path) -> None:
    """L5: the lease was waiting when the machine fell asleep, and is read when it wakes up."""
    agent = Agent()
    agent.lease_s = None
    agent.assigned()
    lease = leased(agent.core)
    shell = AgentShell(tmp_path, agent, suspended_s=lambda: 3600.0)
    shell.happens(lease)
    assert not shell.started


def test_what_an_agent_that_was_killed_ran_is_given_back_with_its_checkpoint() -> None:
    """L6: it is listed from the first heartbeat on, until the coordinator has the checkpoint."""
    agent = Agent(left=fx.Left(interrupted=[(JOB, 3)]))
    assert agent.took(fx.BundleCheckpoint) == [fx.BundleCheckpoint(JOB, 3)]
    held = agent.said(m.Heartbeat)[0].jobs
    assert [(one.job_id, one.attempt, one.phase) for one in held] == [(JOB, 3, "bundling")]
    agent.handle(fx.CheckpointBundled(JOB, 3, HEX, 2000))
    report = agent.said(m.Released)[0]
    assert (report.attempt, report.artifact_id, report.interrupted) == (3, HEX, True)
    assert agent.phase() == "reporting"


# The coordinator's side


@pytest.mark.parametrize("reason", ["lost", "silence"])
def test_nobody_else_is_given_the_job_before_its_lease_ends(reason: str) -> None:
    """L2: however the connection has ended."""
    fleet, pi, pc = _running()
    fleet.passes(1)
    if reason == "lost":
        pi.status("offline", "lost")
    for _ in range(19):
        fleet.passes(30)
        pc.beats()
    assert (fleet.job().state, fleet.job().host) == ("running", "pi")
    fleet.passes(31)
    assert (fleet.job().state, fleet.job().host) == ("claimed", "pc")


def test_a_machine_that_may_sleep_has_a_longer_lease() -> None:
    """L5: both sides know it."""
    fleet, pi, _ = _running()
    pi.heard(m.Lease)
    pi.beats((fleet.job().job_id, 1, "running"), suspended_s=60.0)
    assert [one.lease_s for one in pi.heard(m.Lease)] == [7200.0]
    fleet.passes(7199)
    assert fleet.job().state == "running"
    fleet.passes(2)
    assert fleet.job().state == "pending"


def test_an_acceptance_and_a_heartbeat_are_answered_by_a_lease() -> None:
    """L1: it names what was heard, and the attempts that are still the host's."""
    _, pi, job = running(spec(), spec("other"))
    (lease,) = pi.heard(m.Lease)
    assert [(one.job_id, one.attempt) for one in lease.jobs] == [(job.job_id, 1)]
    pi.beats((job.job_id, 1, "running"), (OTHER, 1, "running"))
    (lease,) = pi.heard(m.Lease)
    assert (lease.heard, [one.job_id for one in lease.jobs]) == (str(pi.seq), [job.job_id])


def test_leases_begin_anew_after_our_own_absence() -> None:
    """L7: it was not the hosts that were silent."""
    fleet, _, _ = _running()
    fleet.handle(Disconnected("gone"))
    fleet.passes(5000)
    assert fleet.job().state == "running"
    fleet.handle(Connected("again"))
    fleet.passes(599)
    assert fleet.job().state == "running"
    fleet.passes(2)
    assert fleet.job().state == "pending"


def test_an_accepted_claim_outlives_a_restart_of_the_coordinator() -> None:
    """L7: its host may have been granted a lease that this process knows nothing of."""
    fleet, pi = joined(spec())
    assign = pi.heard(m.Assign)[-1]
    pi.reports(m.Accepted, fleet.job(), request_id=assign.id)
    fleet.start()
    fleet.host("pc").joins()
    fleet.passes(599)
    assert (fleet.job().state, fleet.job().host) == ("claimed", "pi")


def _given_to_pc() -> tuple[Fleet, Host, Host, str]:
    """`pc` runs what `pi` had lost; `pi` is back with its result, and its receipt."""
    fleet, pi, pc = _running()
    receipt = _receipt(fleet, pi)
    pi.status("offline", "lost")
    fleet.passes(650)
    pc.joins()
    pc.runs()
    pi.returns((fleet.job().job_id, 1, "reporting"))
    return fleet, pi, pc, receipt


def test_a_result_of_a_lost_attempt_is_taken_while_a_later_one_runs() -> None:
    """J4: the later one is told to stop; the history names the attempt that it is of.

    It needs a receipt: else any host could finish any job that was ever lost.
    """
    fleet, pi, pc, receipt = _given_to_pc()
    job = fleet.job()
    assert (job.host, job.attempt) == ("pc", 2)
    assert not pi.heard(m.Cancel)
    assert pi.finishes(job, 1) == "superseded", "without the receipt of its attempt"
    pi.brings_home(job, 1, receipt=receipt)
    assert (fleet.job().state, fleet.job().host, fleet.job().attempt) == ("completed", "pi", 2)
    assert (fleet.changes[-1].attempt, fleet.changes[-1].event) == (1, "completed")
    assert [one.attempt for one in pc.heard(m.Cancel)] == [2]


def test_the_later_attempt_keeps_its_slot_while_the_result_is_on_its_way() -> None:
    fleet, pi, _, receipt = _given_to_pc()
    assert pi.finishes(fleet.job(), 1, receipt=receipt) == "wanted"
    fleet.plan(spec(), spec("other", priority=1), spec("third"))
    assert (fleet.job("other").host, fleet.job("third").state) == ("pi", "pending")


def test_a_result_of_an_attempt_that_a_twin_gave_back_is_taken() -> None:
    """J6: the other agent of that name had nothing of it, and this one has finished it."""
    fleet, pi, _ = _running()
    job, receipt = fleet.job(), _receipt(fleet, pi)
    fleet.asks(m.AskPause(id="p"))
    pi.reports(m.Released, job, why=m.Why(code="drained"))
    assert fleet.job().state == "pending"
    pi.brings_home(job, 1, receipt=receipt)
    assert fleet.job().state == "completed"


def test_a_requeue_voids_what_earlier_attempts_finish() -> None:
    """J4: it was to begin anew; also after a restart."""
    fleet, pi, pc = _running()
    job, receipt = fleet.job(), _receipt(fleet, pi)
    fleet.asks(m.AskRequeue(id="q", job="job"))
    assert fleet.job().attempt == 2
    fleet.start()
    for host in (pi, pc):
        host.joins()
    assert pi.finishes(job, 1, receipt=receipt) == "superseded"


def test_an_interrupted_attempt_that_got_further_costs_nothing() -> None:
    """L6: one that did not is lost: what kills the agent may be the job."""
    fleet, pi, pc = _running()
    hosts = {"pi": pi, "pc": pc}
    for attempt, losses in ((1, 0), (2, 1)):
        host = hosts[str(fleet.job().host)]
        host.gives_back(fleet.job(), why=m.Why(code="interrupted"), interrupted=True)
        if attempt == 1:
            host.uploads()
            fleet.handle(PartStored(HEX, 2000))
        assert fleet.job().losses == losses
        hosts[str(fleet.job().host)].runs()


def _receipt(fleet: Fleet, host: Host) -> str:
    key = fleet.settings.receipt_key
    return receipt_of(key, host.name, fleet.job().job_id, fleet.job().attempt)


def test_a_coordinator_that_was_suspended_takes_no_job_from_a_host_that_is_well() -> None:
    """L7: it could hear nobody. A host that is silent without that loses the job."""
    fleet, pi, _ = _running()
    fleet.mono_s += 700.0  # all timers are late
    fleet.handle(Tick())
    pi.beats((fleet.job().job_id, 1, "running"))
    assert ("job", "lost") not in fleet.history
    assert fleet.job().losses == 0
    fleet.passes(700.0)
    assert ("job", "lost") in fleet.history


def test_a_requeued_job_does_not_go_on_from_an_earlier_checkpoint(tmp_path: Path) -> None:
    """J11: not even where a killed agent has left one, which the coordinator never heard of."""
    fleet, _, pc = _running()
    fleet.asks(m.AskCancel(id="a", job="job"))
    fleet.asks(m.AskRequeue(id="b", job="job"))
    pc.beats()
    assert pc.heard(m.Assign)[-1].void_attempt == 1
    kept = Checkpoints(tmp_path)
    kept.begin(JOB, 1)
    (kept.files(JOB) / "state.json").write_text("{}", "utf-8")
    assert not kept.begin(JOB, 2, 1), "attempt 1 is void"
    (kept.files(JOB) / "state.json").write_text("{}", "utf-8")
    assert kept.begin(JOB, 3, 1), "attempt 2 is not"
