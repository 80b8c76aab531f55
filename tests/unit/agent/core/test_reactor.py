"""The agent's core, driven without any IO: every message it sees or sends is encoded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agent.core.effects import (
    BundleChecked,
    BundleFailed,
    BundleMade,
    CheckBundle,
    ClearJob,
    Leave,
    Probed,
    SendChunk,
    Shutdown,
    SignalTrainer,
    SpoolReport,
    StartTrainer,
    Tick,
    TrainerExited,
    TrainerLine,
    TrainerStarted,
)
from agent.core.reactor import Core
from agent.core.state import CoreSettings
from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from tests.harness.agent import GIB, HEX, JOB, Agent


def test_a_job_from_assignment_to_stored() -> None:
    """accepted, started, finished; offered when it is wanted; forgotten when it is stored."""
    agent = Agent()
    assign = agent.assigned()
    assert agent.said(m.Accepted)[0].request_id == assign.id
    (start,) = agent.took(StartTrainer)
    assert (start.slot, start.gpu) == (0, None)
    agent.handle(TrainerStarted(JOB, 1, 77))
    assert agent.said(m.Started)[0].pid == 77
    agent.handle(TrainerLine(JOB, 1, '{"event":"progress","epoch":2,"epochs":4,"train_loss":0.5}'))
    assert agent.said(m.Progress)[0].epoch == 2
    finished = agent.finishes()
    assert finished.metrics == {"auroc": 0.9}
    assert agent.took(SpoolReport)[0].report.artifact_id == HEX
    assert not agent.said(m.Offer), "offered before it was asked for"
    agent.noted(finished, "wanted")
    (offer,) = agent.said(m.Offer)
    assert (offer.size_bytes, offer.attempt) == (2000, 1)
    assert agent.phase() == "uploading"
    agent.granted(m.Grant(missing=((0, 1),), horizon=1, window_chunks=4))
    assert [(chunk.offset, chunk.length) for chunk in agent.took(SendChunk)] == [(0, 2000)]
    agent.granted(m.Stored())
    assert not agent.took(ClearJob), "a grant says nothing of the attempt"
    (again,) = agent.said(m.Finished)
    agent.noted(again, "stored")
    assert agent.took(ClearJob)[0].artifact_id == HEX
    assert agent.phase() is None


@pytest.mark.parametrize(
    ("agent", "more", "words"),
    [
        (Agent(data=None), {}, "has no prepared data"),
        (Agent(), {"model": "cnn"}, "has no trainer for 'cnn'"),
        (Agent(ram_gib=1.5), {"needs": m.Needs(min_ram_gib=4)},
         "needs 4 GiB of RAM; 1.5 GiB is available"),
        (Agent(), {"needs": m.Needs(min_cores=9)}, "needs 9 cores; this host has 4"),
        (Agent(), {"needs": m.Needs(require_cuda=True), "use_cuda": True},
         "needs CUDA; this host has none"),
        (Agent(gpus=(m.Gpu(index=0, vram_free_bytes=GIB),)),
         {"needs": m.Needs(require_cuda=True, min_vram_gib=4), "use_cuda": True},
         "needs 4 GiB of VRAM; 1.0 GiB is free on GPU 0"),
    ],
)  # fmt: skip
def test_a_refusal_has_the_figures(agent: Agent, more: dict[str, Any], words: str) -> None:
    """Judged by what is free at this moment."""
    agent.assigned(**more)
    assert agent.said(m.Refused)[0].reasons == (words,)
    assert not agent.took(StartTrainer)


def test_a_full_host_refuses_and_each_gpu_is_a_slot() -> None:
    """Two cards, two jobs, each with its own; a third is one too many."""
    gpus = (m.Gpu(index=0), m.Gpu(index=3))
    agent = Agent(gpus=gpus, slots=2)
    for number, job_id in enumerate(("aa" * 32, "bb" * 32, "cc" * 32)):
        agent.hears(m.Assign(
            id=f"q{number}", job_id=job_id, attempt=1, instance="i1", name="n", model="gbt",
            mode="oracle", needs=m.Needs(require_cuda=True), use_cuda=True,
        ))  # fmt: skip
    assert [start.gpu for start in agent.took(StartTrainer)] == [0, 3]
    assert agent.said(m.Refused)[0].reasons == ("all 2 slots are busy",)


def test_an_assignment_is_carried_out_once() -> None:
    """J2: repeated while it runs it is accepted again; when it is over it is refused."""
    agent = Agent()
    agent.runs()
    agent.said(m.Accepted)
    agent.assigned(1)
    assert agent.said(m.Accepted)
    assert agent.said(m.Started)
    finished = agent.finishes()
    agent.assigned(1)
    assert agent.said(m.Finished)[0].id == finished.id
    agent.noted(finished, "stored")
    agent.assigned(1)
    assert "attempt 1 is over" in agent.said(m.Refused)[0].reasons[0]
    assert not agent.took(StartTrainer)
    agent.assigned(2)
    assert agent.took(StartTrainer)


def test_a_retained_or_foreign_command_is_none() -> None:
    """T2: a replay; and what is meant for another host."""
    agent = Agent()
    assign = m.Assign(
        id="a", job_id=JOB, attempt=1, instance="i1", name="n", model="gbt", mode="oracle",
    )  # fmt: skip
    agent.handle(Incoming(agent.topics.request("pi"), m.encode(assign), retained=True))
    agent.handle(Incoming(agent.topics.request("other"), m.encode(assign)))
    assert not agent.took(StartTrainer)


def test_cancel_means_term_then_kill_then_stopped() -> None:
    """J7: the answer comes when nothing runs any more."""
    agent = Agent()
    agent.runs()
    agent.hears(m.Cancel(id="c1", job_id=JOB, attempt=1))
    assert [one.kill for one in agent.took(SignalTrainer)] == [False]
    assert not agent.said(m.Stopped)
    agent.passes(11)
    assert [one.kill for one in agent.took(SignalTrainer)] == [True]
    agent.ends(-9)
    assert agent.said(m.Stopped)[0].request_id == "c1"
    assert agent.took(ClearJob)
    assert not agent.said(m.Failed)


@pytest.mark.parametrize(
    ("why", "said"),
    [("", "cancelled"), ("cancelled", "cancelled"), ("drained", "cancelled: drained")],
)
def test_why_an_attempt_ends_is_told(why: str, said: str) -> None:
    """For the log, without saying a word twice."""
    agent = Agent()
    agent.runs()
    agent.hears(m.Cancel(id="c1", job_id=JOB, attempt=1, why=why))
    assert agent.core.why_ending(JOB, 1) == said


def test_cancel_of_what_is_not_here_is_answered_at_once() -> None:
    """And keeps a late assignment of that attempt from starting."""
    agent = Agent()
    agent.hears(m.Cancel(id="c1", job_id=JOB, attempt=3))
    assert agent.said(m.Stopped)
    agent.assigned(3)
    assert agent.said(m.Refused)


def test_a_goodbye_names_the_results_that_wait_here() -> None:
    """P3: no coordinator may have heard of them. A will does not bear them."""
    agent = Agent()
    agent.runs(attempt=2)
    assert agent.core.status("offline", "goodbye", "s1").owes == ()
    finished = agent.finishes(attempt=2)
    owed = (m.OwedResult(job_id=JOB, attempt=2),)
    assert agent.core.status("offline", "goodbye", "s1").owes == owed
    assert agent.core.status("offline", "lost", "s1").owes == ()
    agent.noted(finished, "stored")
    assert agent.core.status("offline", "goodbye", "s1").owes == ()


def test_cancel_of_an_older_attempt_leaves_the_newer_alone() -> None:
    """Fencing."""
    agent = Agent()
    agent.runs(attempt=2)
    agent.hears(m.Cancel(id="c1", job_id=JOB, attempt=1))
    assert agent.said(m.Stopped)
    assert not agent.took(SignalTrainer)


@pytest.mark.parametrize("when", ["starting", "bundling", "owed"])
def test_cancel_at_any_moment_leaves_nothing(when: str) -> None:
    """Before the process runs, while its bundle is made, while it waits in the spool."""
    agent = Agent()
    agent.assigned()
    cancel = m.Cancel(id="c1", job_id=JOB, attempt=1)
    if when == "starting":
        agent.hears(cancel)
        agent.handle(TrainerStarted(JOB, 1, 77))
        assert agent.took(SignalTrainer)
        agent.ends(-15)
    else:
        agent.handle(TrainerStarted(JOB, 1, 77))
        agent.ends(0)
        if when == "bundling":
            agent.hears(cancel)
            agent.handle(BundleMade(JOB, 1, HEX, 2000))
        else:
            agent.handle(BundleMade(JOB, 1, HEX, 2000))
            agent.hears(cancel)
    assert agent.said(m.Stopped)
    assert agent.took(ClearJob)
    assert agent.phase() is None


@pytest.mark.parametrize(
    ("code", "lines", "words"),
    [
        (2, ['{"event":"error","kind":"bad_input","message":"no host x"}'], "bad_input: no host x"),
        (1, ["Traceback ...", "ValueError: boom"], "ValueError: boom"),
        (75, [], "exit code 75"),
    ],
)
def test_a_failure_is_told_in_the_trainers_words(code: int, lines: list[str], words: str) -> None:
    """And repeated until it is noted (J3), also over a restart of the agent."""
    agent = Agent()
    agent.runs()
    agent.ends(code, 1, *lines)
    (failed,) = agent.said(m.Failed)
    assert words in failed.error
    assert failed.exit_code == code
    assert agent.took(SpoolReport)
    agent.passes(20)
    repeated = agent.said(m.Failed)
    assert len(repeated) >= 2
    assert {one.id for one in repeated} == {failed.id}
    agent.noted(failed, "recorded")
    agent.passes(60)
    assert not agent.said(m.Failed)


@pytest.mark.parametrize(
    ("code", "lines", "said"),
    [
        (-9, [], "(killed by signal 9, perhaps for want of memory)"),
        (-15, [""], "(ended by signal 15)"),
        (1, ["a", "ValueError: b", ""], "(exit code 1); its last line: ValueError: b"),
    ],
)
def test_the_first_line_of_a_failure_says_all_that_is_known(
    code: int, lines: list[str], said: str
) -> None:
    """Of a failure that is tried again nobody is told more; what is not there is not promised."""
    agent = Agent()
    agent.runs()
    agent.ends(code, 1, *lines)
    (failed,) = agent.said(m.Failed)
    first, *others = failed.error.splitlines()
    assert first == f"the trainer ended without a word of its own {said}"
    assert others == (["what came before:", "a"] if lines[:-1] else [])


def test_what_cannot_be_started_or_bundled_fails() -> None:
    """With what the system said."""
    agent = Agent()
    agent.assigned()
    agent.handle(TrainerExited(JOB, 1, None, "no such file"))
    assert agent.said(m.Failed)[0].error == "no such file"
    other = Agent()
    other.runs()
    other.ends(0)
    other.handle(BundleFailed(JOB, 1, "disk full"))
    assert "disk full" in other.said(m.Failed)[0].error


def test_an_answer_to_another_report_changes_nothing() -> None:
    """A late answer to what was reported before must not put away what is owed now."""
    agent = Agent()
    agent.runs()
    finished = agent.finishes()
    agent.noted(finished.model_copy(update={"id": "older"}), "superseded")
    assert not agent.took(ClearJob)
    assert agent.phase() == "reporting"


def test_the_spool_is_handed_over_after_a_restart() -> None:
    """With the same report id, by the new process."""
    report = m.Finished(
        id="r9", session="old", instance="old", job_id=JOB, attempt=4, artifact_id=HEX, size_bytes=9
    )
    agent = Agent(report)
    (said,) = agent.said(m.Finished)
    assert (said.id, said.attempt, said.instance) == ("r9", 4, "i1")
    agent.assigned(4)
    assert not agent.took(StartTrainer)
    agent.noted(said, "superseded")
    assert agent.took(ClearJob)


def test_everything_is_said_anew_to_a_new_coordinator() -> None:
    """P1, P4: status, capability, heartbeat, reports; once, and soon."""
    agent = Agent()
    agent.runs()
    finished = agent.finishes()
    agent.noted(finished, "wanted")
    agent.sent.clear()
    online = m.Status(state="online", session="c2", instance="c", boot_id="b")
    for _ in range(3):
        agent.handle(Incoming(agent.topics.coordinator_status(), m.encode(online)))
    agent.passes(0.6)
    assert len(agent.said(m.Status)) == 1
    assert agent.said(m.Capability)
    assert agent.said(m.Heartbeat)[-1].jobs[0].phase == "reporting"
    assert agent.said(m.Finished)[0].id == finished.id


def test_a_coordinator_that_has_another_connection_knows_what_its_hosts_are() -> None:
    """P4: that is nearly all of a birth's bytes; what it holds and owes is told again."""
    agent = Agent()
    agent.runs()
    agent.sent.clear()
    topic = agent.topics.coordinator_status()
    online = m.Status(state="online", session="c1", instance="c", boot_id="b")
    agent.handle(Incoming(topic, m.encode(online)))
    agent.passes(0.6)
    assert len(agent.said(m.Capability)) == 1, "it may know nothing of us"
    finished = agent.finishes()
    agent.noted(finished, "wanted")
    agent.sent.clear()
    agent.handle(Incoming(topic, m.encode(online.model_copy(update={"session": "c2"}))))
    agent.passes(0.6)
    assert len(agent.said(m.Status)) == 1
    assert agent.said(m.Heartbeat)[-1].jobs[0].phase == "reporting"
    assert agent.said(m.Finished)[0].id == finished.id
    assert not agent.said(m.Capability)
    agent.hears(m.Rebirth(id="r"))
    assert agent.said(m.Capability), "it had to ask"
    other = online.model_copy(update={"session": "c3", "instance": "d"})
    agent.handle(Incoming(topic, m.encode(other)))
    agent.passes(0.6)
    assert agent.said(m.Capability)
    assert agent.core.state.capability is not None
    agent.handle(Probed(agent.core.state.capability))
    agent.sent.clear()
    agent.handle(Incoming(topic, m.encode(other.model_copy(update={"session": "c4"}))))
    agent.passes(0.6)
    assert agent.said(m.Capability), "it may have been away when that was said"


def test_a_coordinator_that_was_there_before_has_heard_the_birth() -> None:
    """P4: its retained status is no news, or every reconnect would state everything twice."""
    agent = Agent()
    agent.sent.clear()
    online = m.Status(state="online", session="c2", instance="c", boot_id="b")
    topic = agent.topics.coordinator_status()
    agent.handle(Incoming(topic, m.encode(online), retained=True))
    agent.passes(0.6)
    assert not agent.said(m.Status)
    agent.handle(Incoming(topic, m.encode(online)))
    agent.passes(0.6)
    assert not agent.said(m.Status)


def test_a_rejection_is_looked_into() -> None:
    """S6: not final: the bundle is checked; whole, it is reported again; broken, the job failed."""
    for whole in (True, False):
        agent = Agent()
        agent.runs()
        finished = agent.finishes()
        agent.noted(finished, "wanted")
        agent.granted(m.Rejected(reason="other hash", final=False))
        (check,) = agent.took(CheckBundle)
        agent.said(m.Finished)
        agent.handle(BundleChecked(check.job_id, check.attempt, whole))
        agent.passes(5)
        assert bool(agent.said(m.Finished)) == whole
        assert bool(agent.said(m.Failed)) == (not whole)
    agent = Agent()
    agent.runs()
    agent.noted(agent.finishes(), "wanted")
    agent.granted(m.Rejected(reason="superseded", final=True))
    assert not agent.took(ClearJob), "it may be meant for another attempt"
    agent.noted(agent.said(m.Finished)[0], "superseded")
    assert agent.took(ClearJob)


def test_a_shutdown_gives_the_job_back_and_says_so_first() -> None:
    """No job is taken meanwhile; it leaves when that is noted, or when its patience is over."""
    agent = Agent()
    agent.runs()
    agent.said(m.Heartbeat)
    agent.handle(Shutdown())
    assert agent.said(m.Heartbeat)[0].refuses
    agent.assigned(1)
    agent.hears(m.Assign(
        id="z", job_id="cc" * 32, attempt=1, instance="i1", name="n", model="gbt", mode="oracle",
    ))  # fmt: skip
    assert "shutting down" in agent.said(m.Refused)[0].reasons[0]
    released = agent.leaves_off()
    assert not agent.took(Leave)
    agent.noted(released, "recorded")
    assert agent.took(Leave)

    stubborn = Agent()
    stubborn.runs()
    stubborn.handle(Shutdown())
    stubborn.passes(20)
    assert stubborn.took(Leave), "a trainer that does not end keeps the agent"


def test_a_flood_of_lines_does_not_flood_the_broker() -> None:
    """Some lines a second go out, and how many were left out."""
    agent = Agent()
    agent.runs()
    agent.sent.clear()
    for number in range(1000):
        agent.handle(TrainerLine(JOB, 1, f"line {number}"))
    lines = [said for topic, said in agent.sent if topic.kind is Kind.LOG]
    assert len(lines) == 50
    agent.passes(1)
    agent.handle(TrainerLine(JOB, 1, "later"))
    assert (agent.sent[-2][1], agent.sent[-1][1]) == (b"1.51 ... 950 lines left out", b"1.52 later")


def test_whatever_a_trainer_prints_the_agent_goes_on() -> None:
    """Half surrogates, NaN, huge numbers, wrong types, deep nesting, binary."""
    agent = Agent()
    agent.runs()
    for line in (
        '{"event":"error","kind":3,"message":"\\ud800"}', '{"event":"result","metrics":{"a":NaN}}',
        '{"event":"progress","epoch":-1,"epochs":"x","train_loss":1e999,"metrics":[]}',
        '{"event":"progress","epoch":1,"epochs":0,"eta_s":-5,"metrics":{"\\ud800":"\\udfff"}}',
        '{"event":"phase","phase":"' + "x" * 999 + '"}', '{"event":', "{}", "[" * 5000,
        '{"event":"result","metrics":{"n":' + "9" * 4000 + "}}", "\x00\x1b[31m", "é" * 9000,
    ):  # fmt: skip
        agent.handle(TrainerLine(JOB, 1, line))
    agent.finishes()


@pytest.mark.parametrize(
    "said",
    ['"train_loss":' + "9" * 400, '"epoch":' + "9" * 400 + ',"epochs":1',
     *(f'"metrics":{{"a":{"[" * levels}{"]" * levels}}}' for levels in (240, 300, 600, 900, 4000))],
    ids=["a loss", "an epoch", "240 levels", "300 levels", "600 levels", "900 levels", "4000"],
)  # fmt: skip
@pytest.mark.parametrize("event", ["progress", "result"])
def test_no_number_and_no_nesting_of_a_trainers_ends_the_agent(event: str, said: str) -> None:
    """The job beside it goes on, and its own result is handed over."""
    agent = Agent()
    agent.runs()
    agent.ends(0, 1, f'{{"event":"{event}","metrics":{{}},{said}}}')
    assert agent.phase() == "bundling"
    agent.handle(BundleMade(JOB, 1, HEX, 2000))
    assert agent.said(m.Finished)


def test_a_coordinator_that_is_heard_before_we_are_connected_is_no_harm() -> None:
    """A retained message may come first; the birth waits for the connection."""
    core = Core(CoreSettings("pi", "i1", "b"), Topics(), rng=random.Random(1), new_id=lambda: "x")
    now = Now(1.0, 1.0)
    status = m.Status(state="online", session="c1", instance="c", boot_id="b")
    core.handle(Incoming(Topics().coordinator_status(), m.encode(status), retained=True), now)
    core.handle(Tick(), Now(9.0, 9.0))
    assert not [effect for effect in core.take() if isinstance(effect, Outgoing)]
    core.handle(Connected("s1"), Now(10.0, 10.0))
    assert [effect.topic for effect in core.take() if isinstance(effect, Outgoing)]


def test_one_heartbeat_tells_of_many_changes() -> None:
    """What an assignment is judged by is no news; that it was taken is told within a second."""
    agent = Agent()
    agent.said(m.Heartbeat)
    agent.assigned()
    agent.handle(TrainerStarted(JOB, 1, 77))
    assert not agent.said(m.Heartbeat)
    agent.passes(1)
    assert [[job.phase for job in beat.jobs] for beat in agent.said(m.Heartbeat)] == [["running"]]


def test_a_progress_that_nobody_has_told_is_not_cleared() -> None:
    """But for what an earlier agent, which was killed, may have left on the broker."""
    for attempt, lines, cleared in ((1, (), False), (1, ("phase",), True), (2, (), True)):
        agent = Agent()
        agent.runs(attempt=attempt)
        agent.ends(0, attempt, *(f'{{"event":"{one}","phase":"train"}}' for one in lines))
        said = [said for topic, said in agent.sent if topic.kind is Kind.PROGRESS]
        assert (b"" in said) == cleared


def test_a_broker_that_ends_the_connection_at_larger_messages_is_sent_smaller_ones() -> None:
    """Once may be chance; what it takes is found out without a setting, and the upload goes on."""
    agent = Agent()
    agent.assigned()
    finished = agent.finishes(size_bytes=4 << 20)
    limit_bytes, largest = 100_000, 1 << 20
    for number in range(4):
        agent.noted(finished, "wanted")
        assert agent.said(m.Offer)
        written, cut = 0, False
        while written < 256 and not cut:
            grant = m.Grant(
                missing=((written, 256),), horizon=256, window_chunks=512, span_chunks=64
            )
            agent.granted(grant)
            sent = agent.took(SendChunk)
            cut = any(chunk.length > limit_bytes for chunk in sent)
            largest = max(chunk.length for chunk in sent)
            written = max(chunk.index + chunk.length // 16384 for chunk in sent)
            agent.passes(0.01)
        if not cut:
            break
        agent.handle(Disconnected("the broker has closed the connection"))
        agent.handle(Connected(f"again{number}"))
        agent.passes(1.0)
        (finished, *_) = agent.said(m.Finished)
    assert not cut
    assert number == 2, "it gave in too soon, or too late"
    assert largest == 64 * 1024


def test_a_report_says_how_long_the_trainer_ran_and_no_more() -> None:
    """Not from the assignment, not the bundling; and the same when it is said again hours later."""
    agent = Agent()
    agent.assigned()
    agent.passes(3)
    agent.handle(TrainerStarted(JOB, 1, 77))
    agent.passes(40)
    agent.ends()
    agent.passes(20)
    agent.handle(BundleMade(JOB, 1, HEX, 2000))
    assert agent.said(m.Finished)[0].ran_s == pytest.approx(40.0)
    assert agent.took(SpoolReport)[0].report.ran_s == pytest.approx(40.0)
    agent.handle(Disconnected("gone"))
    agent.passes(7200)
    agent.handle(Connected("s2"))
    again = agent.said(m.Finished)[-1]
    assert (again.session, again.ran_s) == ("s2", pytest.approx(40.0))
    agent.noted(again, "wanted")
    agent.granted(m.Rejected(reason="corrupt", final=False))
    agent.handle(BundleChecked(JOB, 1, whole=False))
    assert agent.said(m.Failed)[0].ran_s == pytest.approx(40.0)


def test_what_fails_is_given_back_or_is_stopped_says_how_long_it_ran() -> None:
    """A trainer that was never started ran for no time that could be told."""
    agent = Agent()
    agent.runs()
    agent.passes(5)
    agent.ends(1)
    assert agent.said(m.Failed)[0].ran_s == pytest.approx(5.0)
    agent.runs(2)
    agent.passes(6)
    agent.hears(m.Release(id="r", job_id=JOB, attempt=2))
    agent.passes(1)
    assert agent.leaves_off(2).ran_s == pytest.approx(7.0)
    agent.runs(3)
    agent.passes(8)
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=3))
    agent.passes(2)
    agent.ends(75, 3)
    assert agent.said(m.Stopped)[-1].ran_s == pytest.approx(10.0)
    agent.assigned(4)
    agent.passes(9)
    agent.handle(TrainerExited(JOB, 4, None, "the trainer could not be started"))
    assert agent.said(m.Failed)[0].ran_s is None
