"""The coordinator's core, driven without any IO: every message it sees or sends is encoded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from broker import messages as m
from broker.topics import Kind
from broker.wire import Incoming
from coordinator.effects import (
    AppendIndex,
    FinishPart,
    ManifestRead,
    ManifestRefused,
    OpenPart,
    PartFailed,
    PartStored,
    WriteChunk,
)
from coordinator.jobs import Change
from coordinator.manifest import Problem
from coordinator.plan import HostPolicy, Plan
from coordinator.states import Event
from tests.harness.coordinator import HEX, OPERATOR, Fleet, spec


def test_the_highest_priority_goes_first_and_one_job_fills_one_slot() -> None:
    """Then the older; the rest waits."""
    fleet = Fleet(spec("low", 1), spec("high", 9), spec("middle", 5))
    pi = fleet.host().joins()
    assert [assign.name for assign in pi.heard(m.Assign)] == ["high"]
    assert fleet.job("high").state == "claimed"
    assert fleet.job("high").attempt == 1
    attic = fleet.host("attic").joins()
    assert [assign.name for assign in attic.heard(m.Assign)] == ["middle"]


def test_an_assignment_is_repeated_until_it_is_answered() -> None:
    """With the same id and attempt; after the time is over the job is pending again."""
    fleet = Fleet(spec(), claim_timeout_s=30.0)
    pi = fleet.host().joins()
    fleet.passes(20)
    assigned = pi.heard(m.Assign)
    assert len(assigned) > 2
    assert len({(one.id, one.attempt) for one in assigned}) == 1
    fleet.passes(15)
    assert fleet.job().state == "pending"
    assert fleet.history[-1] == ("job", "unanswered")
    assert fleet.job().losses == 0


def test_a_refusal_is_explained_and_not_asked_again_at_once() -> None:
    """The host's own words are what `why` shows."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    (assign,) = pi.heard(m.Assign)
    pi.reports(m.Refused, fleet.job(), request_id=assign.id, reasons=("needs 9 GiB; 1 is free",))
    assert fleet.job().state == "pending"
    assert not pi.heard(m.Assign)
    answer = fleet.asks(m.AskWhy(id="w", job="job"))
    assert answer.data["hosts"][0]["reasons"] == ["refused a moment ago: needs 9 GiB; 1 is free"]
    fleet.passes(31)
    assert {assign.attempt for assign in pi.heard(m.Assign)} == {2}


def test_heartbeats_renew_the_lease_and_silence_loses_the_job() -> None:
    """The next attempt goes to another host; the old one is told to stop when it speaks."""
    fleet = Fleet(spec(), stale_after_s=100.0)
    pi = fleet.host().joins()
    job = pi.runs()
    for _ in range(5):
        fleet.passes(90)
        pi.beats((job.job_id, 1, "running"))
    assert fleet.job().state == "running"
    fleet.passes(101)
    assert fleet.job().state == "pending"
    assert fleet.job().losses == 1
    attic = fleet.host("attic").joins()
    attic.runs()
    assert fleet.job().attempt == 2
    pi.beats((job.job_id, 1, "running"))
    (cancel,) = pi.heard(m.Cancel)
    assert (cancel.job_id, cancel.attempt) == (job.job_id, 1)
    assert fleet.job().host == "attic"


def test_a_host_that_comes_back_in_time_goes_on() -> None:
    """J6: nobody else has been given the job meanwhile, so its work counts."""
    fleet = Fleet(spec(), stale_after_s=100.0)
    pi = fleet.host().joins()
    job = pi.runs()
    pi.status("offline", "lost")
    fleet.passes(150)
    assert fleet.job().state == "pending"
    pi.session = "s-2"
    pi.status("online", "birth")
    pi.beats((job.job_id, 1, "running"))
    assert (fleet.job().state, fleet.job().attempt) == ("running", 1)
    assert fleet.history[-1] == ("job", "resumed")


def test_a_job_that_is_lost_too_often_fails() -> None:
    """With the words of what happened; requeue gives it new attempts."""
    fleet = Fleet(spec(), stale_after_s=50.0, max_attempts=2)
    pi = fleet.host().joins()
    for _ in range(2):
        pi.runs()
        fleet.passes(49)
        pi.beats()
        fleet.passes(10)
    assert fleet.job().state == "failed"
    assert "lost 2 times" in str(fleet.job().error)
    fleet.asks(m.AskRequeue(id="q", job="job"))
    assert fleet.job().losses == 0


def test_an_agent_that_restarts_without_the_job_loses_it_at_once() -> None:
    """J5: no need to wait for the lease."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    pi.runs()
    pi.status("offline", "lost")
    fleet.passes(2)
    pi.session, pi.instance = "s-2", "i-2"
    pi.joins()
    assert ("job", "lost") in fleet.history
    (assign,) = pi.heard(m.Assign)
    assert assign.attempt == 2


def test_a_goodbye_gives_back_what_ran_but_not_what_is_finished() -> None:
    """P3: a finished bundle waits in the spool and is still wanted."""
    fleet = Fleet(spec("a"), spec("b"))
    pi = fleet.host().joins(slots=2)
    first, second = pi.heard(m.Assign)
    for assign in (first, second):
        job = fleet.ledger[assign.job_id]
        pi.reports(m.Accepted, job, request_id=assign.id)
        pi.reports(m.Started, job, slot=0, pid=1)
    assert pi.finishes(fleet.job("a")) == "wanted"
    pi.status("offline", "goodbye")
    assert fleet.job("a").state == "running"
    assert fleet.job("b").state == "pending"
    assert fleet.job("b").losses == 0


def test_a_late_will_of_an_old_session_changes_nothing() -> None:
    """P2."""
    fleet = Fleet()
    pi = fleet.host().joins()
    pi.session = "s-2"
    pi.joins()
    pi.status("offline", "lost", session="s-pi")
    assert fleet.core.world.hosts["pi"].online
    pi.status("offline", "lost")
    assert not fleet.core.world.hosts["pi"].online


def test_a_silent_host_is_offline() -> None:
    """P7: whatever the broker says or does not say."""
    fleet = Fleet(host_timeout_s=100.0)
    pi = fleet.host().joins()
    fleet.passes(99)
    assert fleet.core.world.hosts["pi"].online
    fleet.passes(2)
    assert not fleet.core.world.hosts["pi"].online
    pi.beats()
    assert fleet.core.world.hosts["pi"].online


def test_a_host_that_nobody_knows_is_asked_who_it_is() -> None:
    """P5: once in ten seconds at most."""
    fleet = Fleet()
    pi = fleet.host()
    for _ in range(5):
        pi.beats()
    fleet.passes(6)
    assert len(pi.heard(m.Rebirth)) == 1
    pi.beats()
    fleet.passes(5)
    assert not pi.heard(m.Rebirth)
    fleet.passes(6)
    pi.beats()
    fleet.passes(6)
    assert len(pi.heard(m.Rebirth)) == 1


def test_nobody_is_asked_who_they_are_while_a_fleet_comes_in() -> None:
    """P5: the birth may wait behind those of others; not for ever."""
    fleet = Fleet()
    pi = fleet.host()
    pi.beats()
    for batch in range(10):
        fleet.passes(0.5)
        for number in range(40):
            fleet.host(f"other-{batch}-{number}").joins()
    fleet.passes(2)
    assert not pi.heard(m.Rebirth), "after 7 s, of which 5 were the crowd's"
    fleet.passes(1)
    assert len(pi.heard(m.Rebirth)) == 1


@pytest.mark.parametrize("known", [False, True])
def test_a_heartbeat_that_overtakes_the_birth_is_taken_with_it(known: bool) -> None:
    """P5: what is on its way is not asked for, and the host need not wait for its next beat."""
    fleet = Fleet(spec())
    pi = fleet.host()
    if known:
        pi.joins()
        pi.reports(m.Refused, fleet.job(), request_id="x", reasons=("r",))
        pi.session, pi.instance = "s-2", "i-2"
    pi.beats()
    beats, seq = pi.beats, pi.seq
    pi.beats = lambda: None  # type: ignore[method-assign] # the birth without a heartbeat of its own
    pi.joins()
    host = fleet.core.world.hosts["pi"]
    assert host.has_joined()
    assert host.heartbeat is not None
    assert host.heartbeat.seq == seq
    fleet.passes(20)
    assert not pi.heard(m.Rebirth)
    pi.beats = beats  # type: ignore[method-assign]
    pi.beats()
    assert host.heartbeat.seq == seq + 1


def test_a_birth_whose_heartbeat_is_lost_is_asked_for() -> None:
    """P5: it goes at QoS 0, and the host would be given nothing until the next."""
    fleet = Fleet(spec())
    pi = fleet.host()
    pi.beats = lambda: None  # type: ignore[method-assign]
    pi.joins()
    fleet.passes(6)
    assert len(pi.heard(m.Rebirth)) == 1
    fleet.passes(60)
    assert not pi.heard(m.Rebirth), "it may be away"


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


def test_a_capability_in_the_same_words_is_taken_once_and_another_again() -> None:
    """What a broker has retained comes, and then the birth says the same."""
    fleet = Fleet()
    pi = fleet.host().joins(physical_cores=4)
    before = fleet.core.world.hosts["pi"].capability
    pi.joins(physical_cores=4)
    assert fleet.core.world.hosts["pi"].capability is before
    pi.joins(physical_cores=8)
    assert fleet.core.world.hosts["pi"].capability.physical_cores == 8  # type: ignore[union-attr]


def test_an_artifact_comes_home() -> None:
    """finished, wanted, offer, grant, chunks, stored, completed: in this order."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    assert pi.finishes(job) == "wanted"
    pi.uploads(job)
    assert [chunk.index for chunk in fleet.took(WriteChunk)] == [0, 1]
    (finish,) = fleet.took(FinishPart)
    assert (finish.model, finish.mode) == ("gbt", "oracle")
    assert fleet.job().state == "running", "completed before it is in the store"
    assert not pi.heard(m.Stored)
    fleet.handle(PartStored(HEX, 2000))
    done = fleet.job()
    assert (done.state, done.artifact_id, done.host) == ("completed", HEX, "pi")
    assert pi.heard(m.Stored)
    assert fleet.took(AppendIndex)[0].row["metrics"] == {"auroc": 0.9}
    assert pi.finishes(job) == "stored", "the agent did not hear it and reports again"


def test_what_is_stored_already_completes_at_once() -> None:
    """S7: a re-run to the same bytes sends nothing."""
    fleet = Fleet(spec())
    fleet.core.world.stored[HEX] = 2000
    pi = fleet.host().joins()
    job = pi.runs()
    assert pi.finishes(job) == "stored"
    assert fleet.job().state == "completed"


def test_an_offer_that_nobody_awaits_is_sent_back_to_its_report() -> None:
    """After a restart the coordinator does not know of it: not final."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    pi.uploads(job)
    (rejected,) = pi.heard(m.Rejected)
    assert not rejected.final


def test_a_disk_that_refuses_keeps_the_work() -> None:
    """The agent is told, not finally, and may try again until it fits."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    pi.finishes(job)
    pi.uploads(job)
    fleet.handle(PartFailed(HEX, "no space left"))
    (rejected,) = pi.heard(m.Rejected)
    assert not rejected.final
    assert fleet.job().state == "running"
    assert pi.finishes(job) == "wanted"
    pi.uploads(job)
    fleet.handle(PartStored(HEX, 2000))
    assert fleet.job().state == "completed"


def test_the_result_of_an_old_attempt_is_superseded() -> None:
    """J1: somebody else has the job now."""
    fleet = Fleet(spec(), stale_after_s=50.0)
    pi = fleet.host().joins()
    job = pi.runs()
    pi.status("offline", "lost")
    fleet.passes(60)
    fleet.host("attic").joins().runs()
    assert pi.finishes(job, attempt=1) == "superseded"
    assert fleet.job().host == "attic"


def test_the_result_of_the_newest_attempt_is_taken_late() -> None:
    """J6: also when the lease is long over."""
    fleet = Fleet(spec(), stale_after_s=50.0)
    pi = fleet.host().joins()
    job = pi.runs()
    pi.status("offline", "lost")
    fleet.passes(60)
    assert fleet.job().state == "pending"
    assert pi.finishes(job, attempt=1) == "wanted"
    pi.uploads(job, attempt=1)
    fleet.handle(PartStored(HEX, 2000))
    assert fleet.job().state == "completed"


def test_another_host_speaks_for_nobody() -> None:
    """J1: the attempt alone is no proof; the job is the host's that was given it."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    other = fleet.host("other").joins()
    assert other.finishes(job) == "superseded"
    other.reports(m.Failed, job, error="forged")
    other.reports(m.Released, job, reason="forged")
    other.beats((job.job_id, 1, "running"))
    assert other.heard(m.Cancel)
    assert (fleet.job().state, fleet.job().host) == ("running", "pi")


def test_an_ordinary_handover_of_a_checkpoint_is_no_false_report() -> None:
    """The agent repeats its report when the checkpoint is stored, and the job has left it then."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    fleet.asks(m.AskDrain(id="d", host="pi", now=True))
    given_back = {"reason": "drained", "artifact_id": HEX, "size_bytes": 2000}
    pi.reports(m.Released, job, **given_back)
    pi.uploads(job)
    fleet.handle(PartStored(HEX, 2000))
    assert (fleet.job().state, fleet.job().host) == ("pending", None)
    pi.heard(m.Noted)
    pi.reports(m.Released, job, **given_back)
    assert [noted.verdict for noted in pi.heard(m.Noted)] == ["stored"]
    assert not fleet.core.world.refused["report"]
    pi.reports(m.Released, job, **{**given_back, "artifact_id": "e" * 64})
    assert fleet.core.world.refused["report"] == 1, "of another checkpoint nobody knows"


def test_an_offer_is_answered_stored_as_often_as_it_comes() -> None:
    """S7: the agent did not hear it the first time."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    pi.finishes(job)
    pi.uploads(job)
    fleet.handle(PartStored(HEX, 2000))
    pi.heard(m.Stored)
    pi.uploads(job)
    assert pi.heard(m.Stored)
    assert not pi.heard(m.Rejected)


def test_a_part_that_is_being_checked_is_left_alone() -> None:
    """Another offer of the same artifact must not open the file under the hasher."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    pi.finishes(job)
    pi.uploads(job)
    assert fleet.took(FinishPart)
    offer = m.Offer(job_id=job.job_id, attempt=1, instance="i", size_bytes=2000, chunk_bytes=2048)
    pi.says(fleet.topics.offer("pi", HEX), offer)
    assert not fleet.took(OpenPart)
    fleet.handle(PartStored(HEX, 2000))
    assert fleet.job().state == "completed"


def test_failed_and_released_are_noted_each_time() -> None:
    """J3: the agent may not have heard the first answer."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    pi.reports(m.Failed, job, error="it diverged", exit_code=2, transient=False)
    assert fleet.job().error == "it diverged"
    assert pi.heard(m.Noted)[0].verdict == "recorded"
    pi.reports(m.Failed, job, error="it diverged", exit_code=1)
    assert pi.heard(m.Noted)[0].verdict == "superseded"
    assert fleet.history.count(("job", "failed")) == 1


@pytest.mark.parametrize("state", ["pending", "claimed", "running", "completed", "cancelled"])
def test_cancel_and_requeue_in_every_state(state: str) -> None:
    """Cancel in all but the final ones, requeue in all but pending; a holder is told to stop."""
    fleet = Fleet(spec())
    pi = fleet.host()
    if state != "pending":
        pi.joins()
    if state in {"running", "completed"}:
        job = pi.runs()
    if state == "completed":
        fleet.core.world.stored[HEX] = 2000
        pi.finishes(job)
    if state == "cancelled":
        fleet.asks(m.AskCancel(id="c0", job="job"))
    assert fleet.job().state == state
    final = state in {"completed", "cancelled"}
    pi.heard(m.Cancel)
    requeue = fleet.asks(m.AskRequeue(id="r", job="job"))
    assert requeue.ok == (state != "pending")
    assert len(pi.heard(m.Cancel)) == (state in {"claimed", "running"})
    if not final:
        cancel = fleet.asks(m.AskCancel(id="c", job="job"))
        assert cancel.ok
        assert fleet.job().state == "cancelled"


def test_cancel_is_repeated_until_the_agent_answers() -> None:
    """And no longer."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    fleet.asks(m.AskCancel(id="c", job="job"))
    fleet.passes(10)
    cancels = pi.heard(m.Cancel)
    assert len(cancels) >= 2
    pi.reports(m.Stopped, job, request_id=cancels[-1].id)
    fleet.passes(60)
    assert not pi.heard(m.Cancel)


def test_a_command_is_carried_out_once_however_often_it_arrives() -> None:
    """O2: and its answer is repeated."""
    fleet = Fleet(spec())
    ask = m.AskCancel(id="same", job="job")
    first, second = fleet.asks(ask), fleet.asks(ask)
    assert first == second
    assert first.ok
    assert fleet.history.count(("job", "cancelled")) == 1


def test_a_command_past_its_expiry_is_not_carried_out() -> None:
    """O2: it lay somewhere for too long."""
    fleet = Fleet(spec())
    old = fleet.now.wall_s - 3600
    answer = fleet.asks(m.AskCancel(id="x", job="job", expires_at=old))
    assert answer.code == "expired"
    assert fleet.job().state == "pending"


@pytest.mark.parametrize("state", ["pending", "claimed", "running", "finished"])
def test_a_coordinator_that_restarts_goes_on(state: str) -> None:
    """From the ledger alone, with the agent in the midst of it."""
    fleet = Fleet(spec())
    pi = fleet.host()
    if state != "pending":
        pi.joins()
    if state in {"running", "finished"}:
        job = pi.runs()
    if state == "finished":
        pi.finishes(job)
    fleet.sent.clear()
    fleet.start()
    fleet.plan(spec())
    held = {"running": "running", "finished": "reporting"}.get(state)
    pi.joins(*([(fleet.job().job_id, 1, held)] if held else []))
    if held is None:
        fleet.passes(3)
        pi.heard(m.Rebirth)
        (assign, *_) = pi.heard(m.Assign)
        pi.reports(m.Accepted, fleet.job(), request_id=assign.id)
    assert fleet.job().attempt == 1
    assert pi.finishes(fleet.job()) == "wanted"
    pi.uploads(fleet.job())
    fleet.handle(PartStored(HEX, 2000))
    assert fleet.job().state == "completed"
    assert [event for _, event in fleet.history].count("assigned") == 1


def test_a_reload_changes_in_place_and_orphans_are_not_assigned() -> None:
    """The state stays; what was taken out waits for `cancel`, or to be put back."""
    fleet = Fleet(spec("a"), spec("b"))
    fleet.plan(spec("a", priority=5))
    assert fleet.job("a").spec.priority == 5
    assert not fleet.job("b").in_plan
    pi = fleet.host().joins(slots=2)
    assert [one.name for one in pi.heard(m.Assign)] == ["a"]
    fleet.plan(spec("a", priority=5), spec("b"))
    assert [one.name for one in pi.heard(m.Assign)] == ["b"]
    assert [event for name, event in fleet.history if name == "b"] == [
        "added", "orphaned", "adopted", "assigned"
    ]  # fmt: skip


def test_a_manifest_with_errors_is_marked_until_it_is_mended() -> None:
    """Whoever looks at the fleet sees that the plan is older than the file."""
    fleet = Fleet(spec("a"))

    def fault() -> str:
        said = fleet.asks(m.AskStatus(id=fleet.new_id()))
        return str(said.data["coordinator"]["manifest_fault"])

    assert fault() == ""
    fleet.handle(ManifestRefused((Problem("plan.toml", "jobs[0]", "model", "unknown"),)))
    assert fault() == "plan.toml: jobs[0]: model: unknown"
    assert fleet.job("a").state == "pending"
    fleet.plan(spec("a"))
    assert fault() == ""


def test_a_job_is_told_in_a_line_whatever_a_host_says_of_it() -> None:
    """For the coordinator's log: what became of it, where, and why."""
    fleet = Fleet(spec("a"))
    after = replace(fleet.job("a"), host="pi", attempt=2, error="out of\x1b[2J memory\nmore")
    change = Change(Event.FAILED, fleet.job("a"), after, "now", "host:pi", "")
    assert str(change) == f"job a ({after.job_id[:12]}), attempt 2: failed on pi: out of [2J memory"


def test_a_stale_offline_of_our_own_is_overruled() -> None:
    """P6: a late will of an earlier coordinator must not be the last word."""
    fleet = Fleet()
    fleet.sent.clear()
    topic = fleet.topics.coordinator_status()
    old = m.Status(state="offline", reason="lost", session="old", instance="c0", boot_id="b")
    fleet.handle(Incoming(topic, m.encode(old)))
    births = [said for where, said in fleet.sent if where.kind is Kind.COORDINATOR_STATUS]
    assert births[0].state == "online"


def test_retained_commands_and_reports_are_replays() -> None:
    """T2: nothing happens."""
    fleet = Fleet(spec())
    ask = m.AskCancel(id="x", job="job")
    fleet.handle(
        Incoming(fleet.topics.operator_request("operator:op/cli"), m.encode(ask), retained=True)
    )
    assert fleet.job().state == "pending"


def test_what_an_operator_reads() -> None:
    """status, list in pages, workers, trainers."""
    fleet = Fleet(*(spec(f"job-{number:03}", seed=number) for number in range(250)))
    fleet.host().joins()
    status = fleet.asks(m.AskStatus(id="s")).data
    assert status["jobs"]["pending"] == 249
    assert status["active"] == 1
    assert status["runnable"] == 249
    first = fleet.asks(m.AskList(id="l")).data
    second = fleet.asks(m.AskList(id="l", offset=first["next"])).data
    assert len(first["jobs"]) + len(second["jobs"]) == 250
    assert second["next"] is None
    worker = fleet.asks(m.AskWorkers(id="w")).data["workers"][0]
    assert (worker["host"], worker["status"]) == ("pi", "online")
    assert list(fleet.asks(m.AskTrainers(id="t")).data["trainers"]) == ["gbt"]
    assert json.dumps(status)


def test_jobs_that_need_the_same_are_still_judged_each_for_itself() -> None:
    """By name, by hyperparameters and by what a host has just refused; one of a kind may start."""
    fleet = Fleet()
    fleet.start()
    names = {"one": 9, "two": 3, "three": 4, "z": 4}  # in claim order: one, three, two, z
    jobs = [replace(spec(name), hyper={"epochs": epochs}) for name, epochs in names.items()]
    hosts = {"pi": HostPolicy("pi", deny_jobs=("two",))}
    fleet.handle(ManifestRead(Plan(tuple(jobs), hosts=hosts)))
    schema = {"type": "object", "properties": {"epochs": {"type": "integer", "maximum": 5}}}
    pi = fleet.host("pi")
    pi.joins(trainers={"gbt": m.TrainerInfo(hyper_schema=schema)})
    (first,) = pi.heard(m.Assign)
    assert first.name == "three"
    pi.reports(m.Refused, fleet.job("three"), request_id=first.id, reasons=("not now",))
    assert [one.name for one in pi.heard(m.Assign)] == ["z"]


def test_what_a_host_waits_for_is_said_before_the_rows() -> None:
    """Of a job that moves twice in a turn there is one row, as it then is, after all else."""
    fleet = Fleet()
    pi = fleet.host().joins()
    fleet.sent.clear()
    ask = m.AskRun(id="r", job={"name": "asked", "model": "gbt", "mode": "oracle"})
    fleet.handle(Incoming(fleet.topics.operator_request(OPERATOR), m.encode(ask)))
    kinds = [topic.kind for topic, _ in fleet.sent]
    assert kinds[-1] is Kind.JOB
    assert kinds.count(Kind.JOB) == 1
    assert fleet.sent[-1][1].state == "claimed"
    assert pi.heard(m.Assign)
