"""The agent's core: a plain state machine over slots, attempts and what is owed; it does no IO.

`handle(event, now)` takes a message, an event of a trainer's process or an answer of the shell;
`take()` hands over the effects; `next_deadline()` says when `Tick` is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from agent.core import effects as fx
from agent.core import (
    endings,
    fetching,
    leases,
    output,
    owner,
    preparation,
    reports,
    runs,
)
from agent.core.core_settings import CoreSettings
from agent.core.state import Run, State, Stop
from broker.clock import Now, Randomness
from broker.errors import BadMessage, BadStream, BadTopic
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected, Incoming
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic, Topics

BIRTH_JITTER_S = 0.5


class Core:
    """Decides; see the module. `left` is what an earlier process has left."""

    def __init__(
        self,
        settings: CoreSettings,
        topics: Topics,
        left: fx.Left,
        *,
        rng: Randomness,
        new_id: Callable[[], str],
    ) -> None:
        """Start with nothing running."""
        self.state = State(settings, topics, rng, new_id)
        self._requests: dict[type, Callable[[State, Any, Now], None]] = {
            m.Assign: runs.on_assign,
            m.Lease: leases.on_lease,
            m.Cancel: runs.on_cancel,
            m.Release: runs.on_release,
            m.Rules: owner.on_rules,
            m.Noted: reports.on_noted,
        }
        self._run_events: dict[type, Callable[[State, Run, Any, Now], None]] = {
            fx.TrainerStarted: runs.on_started,
            fx.TrainerLine: runs.on_line,
            fx.TrainerExited: endings.on_exited,
            fx.BundleMade: endings.on_bundle_made,
            fx.BundleFailed: endings.on_bundle_failed,
            fx.PartFound: preparation.on_found,
            fx.CheckpointBundled: endings.on_checkpoint_bundled,
        }
        self._run_timers: dict[str, Callable[[State, Run, Now], None]] = {
            "timeout": runs.on_timeout,
            "stall": runs.on_stall,
            "bundle": endings.on_bundle_timer,
            "fetch": preparation.on_fetch_timer,
            "ahead": runs.on_ahead_timer,
            "kill": runs.on_kill_timer,
            "lease": leases.on_timer,
        }
        reports.reload(self.state, left)
        endings.reload(self.state, left)

    def handle(self, event: Connected | Disconnected | Incoming | fx.ShellEvent, now: Now) -> None:
        """Take one event. Never raises for what came over the wire."""
        if isinstance(event, Incoming):
            self._on_message(event, now)
        elif not isinstance(event, fx.Tick):
            self._on_local(event, now)
        for key in self.state.timers.due(now.mono_s):
            self._on_timer(key, now)
        self._leave_if_done()

    def on_suspended(self, suspended_s: float | None, now: Now) -> None:
        """Learn for how long the machine has slept since it booted."""
        leases.on_suspended(self.state, suspended_s, now)

    def take(self) -> list[fx.Effect]:
        """Hand over the effects, to be performed in order."""
        return self.state.take_out()

    def next_deadline(self) -> float | None:
        """Return when a `Tick` is wanted (monotonic seconds), or none."""
        return self.state.timers.next_deadline()

    def slot_count(self) -> int:
        """Return how many slots this host has."""
        return len(self.state.slots)

    def why_ending(self, job_id: str, attempt: int) -> str:
        """Return what becomes of an attempt that was told to end, and why; empty of any other."""
        run = self.state.runs.get(job_id)
        if run is None or run.attempt != attempt or run.stopping is None:
            return ""
        if run.why is None or run.why.code == run.stopping:
            return run.stopping
        by = f" by {run.why.by}" if run.why.by else ""
        return f"{run.stopping}: {run.why.code}{by}"

    def gpus(self) -> tuple[m.Gpu, ...]:
        """Return the CUDA devices that the probe has found."""
        return self.state.capability.gpus if self.state.capability else ()

    def goodbye(self) -> m.Status:
        """Return the status to leave with."""
        return self._status("offline", "goodbye", self.state.session)

    def will(self, session: str) -> m.Status:
        """Return the status that the broker publishes when the connection `session` dies."""
        return self._status("offline", "lost", session)

    def _status(self, state: str, reason: str, session: str) -> m.Status:
        settings = self.state.settings
        return m.Status.model_validate(
            {
                "state": state,
                "reason": reason,
                "session": session,
                "instance": settings.instance,
                "boot_id": settings.boot_id,
                "owes": reports.results(self.state) if reason == "goodbye" else (),
            }
        )

    def _on_local(self, event: Connected | Disconnected | fx.ShellEvent, now: Now) -> None:
        state = self.state
        match event:
            case Connected(session):
                state.session, state.connected = session, True
                self._birth(now)
            case Disconnected():
                state.connected = state.listening = False
                reports.on_disconnected(state)
            case fx.Probed(capability):
                gpus: list[int | None] = [gpu.index for gpu in capability.gpus] or [None]
                state.slots = tuple(gpus[slot % len(gpus)] for slot in range(capability.slots))
                self._is_now(capability)
                state.do(fx.Measure())
            case fx.Vitals(data_id=data_id, versions=versions, holdings=holdings):
                self._has_now(versions, data_id=data_id, holdings=holdings)
                judged = bool(state.waiting)
                runs.on_vitals(state, event, now)
                if not judged or ("beat-soon",) not in state.timers:
                    self._beat(now)  # else one follows soon, and tells of all that was started
            case fx.Looked():
                if owner.on_looked(state, event, now):
                    self._beat(now)  # first, so that what is given back does not come here again
                owner.give_back(state, now)
            case fx.Shutdown():
                self._on_shutdown(now)
            case fx.BundleChecked():
                reports.on_checked(state, event, now)
            case fx.BundleUnread():
                reports.on_unread(state, event, now)
            case fx.AttemptEvent():
                self._on_attempt(event, now)

    def _on_attempt(self, event: fx.AttemptEvent, now: Now) -> None:
        state = self.state
        if isinstance(event, fx.TrainerExited) and event.data_gone:
            self._has_now({}, data_id=None)  # first, so that the job does not come here again
        run = state.run(event.job_id, event.attempt)
        if run is not None:
            self._run_events[type(event)](state, run, event, now)

    def _on_shutdown(self, now: Now) -> None:
        state = self.state
        if state.leaving:
            return
        state.leaving = True
        self._beat(now)  # so that what is released now is not given back to this host
        for run in list(state.runs.values()):
            endings.keep(state, run)
            runs.stop(state, run, Stop.RELEASED, m.Why(code="leaving"), now)
        # Trainers get their grace; then what is noted is noted, the rest is found by its lease.
        patience_s = state.settings.stop_grace_s if state.runs else 0.0
        state.timers.set(("leave",), now.mono_s + patience_s + state.settings.leave_grace_s)

    def _leave_if_done(self) -> None:
        state = self.state
        if not state.leaving:
            return
        owing = any(not isinstance(held.report, m.Finished) for held in state.owed.values())
        waiting = bool(state.runs) or (owing and state.connected)
        if not waiting or ("leave",) not in state.timers:
            state.do(fx.Leave())

    def _birth(self, now: Now, *, whole: bool = True) -> None:
        """Publish status, capability, heartbeat, kept output and reports.

        What it is, 14 KB, is left out for a coordinator that has been told, or will find it at the
        broker; if it does not, it asks.
        """
        state = self.state
        if not state.connected:
            return  # a retained message may come before the link says so; then this comes again
        topic = state.topics.status(state.settings.host)
        state.publish(topic, self._status("online", "birth", state.session), retain=True)
        if whole:
            self._say_capability()
            state.capability_due = False
        state.do(fx.Measure())
        output.tell(state)  # before the reports: an attempt's output comes before its end
        reports.start_over(state, now)

    def _has_now(self, versions: Mapping[str, str], **data: Any) -> None:
        """Publish the capability again when data has gone or is back, or a trainer was edited."""
        known = self.state.capability
        if known is None:
            return
        trainers = known.trainers
        edited = any(
            name in trainers and trainers[name].version != version
            for name, version in versions.items()
        )
        if edited or any(getattr(known, name) != value for name, value in data.items()):
            self._is_now(known.with_versions(versions).model_copy(update=data))

    def _is_now(self, capability: m.Capability) -> None:
        self.state.capability = capability
        self._say_capability()
        self.state.capability_due = True  # a coordinator that is away knows the one before

    def _say_capability(self) -> None:
        state = self.state
        if state.capability is not None and state.connected:
            capability = state.capability.model_copy(
                update={"session": state.session, "instance": state.settings.instance}
            )
            topic = state.topics.capability(state.settings.host)
            state.publish(topic, capability, retain=True)

    def _beat(self, now: Now) -> None:
        state, vitals = self.state, self.state.vitals
        if not state.connected or vitals is None:
            return
        state.send_reports()  # what the heartbeat shows, they tell with its figures
        state.seq += 1
        beat = m.Heartbeat(
            session=state.session,
            instance=state.settings.instance,
            seq=state.seq,
            jobs=state.held(),
            refuses=state.why_refuses(),
            dropped=state.dropped.total(),
            rules=state.rules_digest,
            **vitals.figures(),
        )
        state.sent(str(beat.seq), now)
        state.publish(state.topics.heartbeat(state.settings.host), beat, qos=0)

    def _on_timer(self, key: tuple[str, ...], now: Now) -> None:
        state = self.state
        match key:
            case ("beat",):
                state.timers.set(("beat",), now.mono_s + state.settings.heartbeat_s)
                state.do(fx.Measure())
            case ("beat-soon",):
                state.do(fx.Measure())
            case ("log",):
                output.on_log_timer(state, now)
            case ("reports",):
                state.reports_due = True
            case ("look",):
                owner.look(state, now)
            case ("birth",):
                state.listening = True
                self._birth(now, whole=state.capability_due)
            case ("report", job_id):
                reports.send(state, job_id, now)
            case ("upload", job_id):
                reports.on_upload_timer(state, job_id, now)
            case (kind, job_id) if job_id in state.runs:
                self._run_timers[kind](state, state.runs[job_id], now)

    def begin(self, now: Now) -> None:
        """Start the heartbeat and the looks at the machine."""
        owner.look(self.state, now)
        self.state.timers.set(("beat",), now.mono_s + self.state.settings.heartbeat_s)

    def _on_message(self, message: Incoming, now: Now) -> None:
        state = self.state
        try:
            topic = state.topics.parse(message.topic)
        except BadTopic as error:
            state.drop("unknown", str(error))
            return
        try:
            self._dispatch(topic, message, now)
        except (BadMessage, BadStream) as error:
            state.drop(topic.kind.value, str(error))
        except ValidationError as error:
            # It fitted, and yet no answer could be made of it: that is garbage as well.
            state.drop(topic.kind.value, f"{error.title} cannot be built")

    def _dispatch(self, topic: Topic, message: Incoming, now: Now) -> None:
        state, mine = self.state, topic.host == self.state.settings.host
        if topic.kind is Kind.COORDINATOR_STATUS and message.payload:
            status = m.decode(m.STATUS, message.payload)
            self._on_coordinator(status, now, retained=message.retained)
        elif message.retained or not mine:
            return  # a retained command is a replay
        elif topic.kind is Kind.REQUEST:
            self._on_request(m.decode(m.AGENT_REQUEST, message.payload), now)
        elif topic.kind is Kind.CHECKPOINT_CHUNK:
            fetching.on_chunk(state, topic.artifact_id, topic.index, message.payload, now)
        elif topic.kind is Kind.IDENTITY_RESPONSE:
            # Taken beside the core: that needs the key.
            m.decode(m.CERTIFICATE_RESPONSE, message.payload)
        elif topic.kind is Kind.GRANT:
            grant = m.decode(m.GRANT, message.payload)
            reports.on_grant(state, topic.artifact_id, grant, now)

    def _on_request(self, request: m.AgentRequest, now: Now) -> None:
        state = self.state
        if isinstance(request, m.Rebirth):
            state.listening = True
            self._birth(now)
        elif isinstance(request, m.Assign) and request.instance != state.settings.instance:
            state.drop("assign", "meant for another process of this agent")
        else:
            self._requests[type(request)](state, request, now)

    def _on_coordinator(self, status: m.Status, now: Now, *, retained: bool) -> None:
        """A coordinator that has just come knows nothing of us but what is in its ledger.

        One whose status was retained was there before we were, and has heard our birth. One that
        has another connection knows what we are, but not what we said meanwhile.
        """
        state = self.state
        if status.state == "offline":
            state.listening &= status.session != state.coordinator
        elif retained or status.session == state.coordinator:
            state.coordinator, state.listening = status.session, True
            state.coordinator_instance = status.instance
            output.tell(state)
        else:
            state.capability_due |= status.instance != state.coordinator_instance
            state.coordinator, state.coordinator_instance = status.session, status.instance
            # All agents hear this at once; they need not all answer at once.
            state.timers.set(("birth",), now.mono_s + BIRTH_JITTER_S * state.rng.random())
