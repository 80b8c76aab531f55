"""The coordinator's core: a plain state machine that decides everything, and does no IO.

`handle(event, now)` takes a message, a link event or an answer of the shell, changes the mirror in
memory, and returns nothing; `take()` hands over what came of it: changes for the ledger and effects
for the shell, in this order. `next_deadline()` says when `Tick` is wanted. No socket, no clock, no
thread, and no randomness but what was handed in, so that the same code runs in a simulation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final, Literal

from pydantic import ValidationError

from broker.clock import Now, Randomness, seconds_of
from broker.errors import BadMessage, BadStream, BadTopic
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected, Incoming
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics, user_of
from coordinator.core import (
    assignment,
    downloads,
    filing,
    give_back,
    incoming,
    leases,
    plan_changes,
    presence,
    programs,
    pushes,
    retries,
    stopping,
    stored_artifacts,
    uploads,
)
from coordinator.core import effects as fx
from coordinator.core.commands import certificate_commands, host_commands, requests
from coordinator.core.core_settings import CoreSettings
from coordinator.core.entries import Answer
from coordinator.core.state import World
from coordinator.jobs.causes import NONE, Cause, cause, in_words
from coordinator.jobs.jobs import Change, Job, JobBook
from coordinator.jobs.records import (
    Action,
    FleetRecord,
    HostRecord,
    PushedRecord,
    Record,
    RequestKey,
    Revocation,
)
from coordinator.jobs.states import JobState
from coordinator.manifest.data_keys import Catalogue

MAX_OTHERS: Final = 16
LATE_S: Final = 5.0  # for a timer: longer than any turn takes
COLLECT_FIRST_S: Final = 300.0


class Core:
    """Decides; see the module.

    `jobs`, `records` and `answers` (to commands, oldest first, with when they were given) are the
    ledger's rows; `stored` maps the ids of the artifacts in the store to their sizes in bytes,
    `bundles` those of the artifacts that the ledger keeps.
    """

    def __init__(
        self,
        settings: CoreSettings,
        topics: Topics,
        jobs: Mapping[str, Job],
        stored: Mapping[str, int],
        *,
        rng: Randomness,
        new_id: Callable[[], str],
        now: Now,
        records: Mapping[str, HostRecord] | None = None,
        fleet: FleetRecord | None = None,
        revoked: Mapping[str, Revocation] | None = None,
        answers: Mapping[RequestKey, tuple[str, m.OperatorResponse]] | None = None,
        bundles: Mapping[str, int] | None = None,
        pushed: Sequence[PushedRecord] = (),
    ) -> None:
        """Take over what the ledger and the store remember; every lease starts afresh."""
        self.world = World(settings, topics, rng, new_id, JobBook(jobs), dict(stored))
        self.world.records.update(records or {})
        self.world.fleet = fleet or FleetRecord()
        self.world.revoked.update(revoked or {})
        self.world.pushed.update((one.offer.title, one) for one in pushed)
        for key, (at, response) in (answers or {}).items():
            self.world.answers[key] = Answer(response, seconds_of(at) or 0.0)
        self._returned = False  # to the broker, which we had told of us before
        self._before: deque[str] = deque(maxlen=MAX_OTHERS)  # sessions of an earlier process
        self._others: deque[str] = deque(maxlen=MAX_OTHERS)  # instances that were warned of
        self._now = now
        for job in self.world.book.in_state(JobState.PENDING):
            self.world.pending_since_s[job.job_id] = now.mono_s - _waited_s(self.world, job, now)
        filing.on_loaded(self.world, bundles or {}, now)
        retries.on_loaded(self.world, now)
        assignment.on_claims_loaded(self.world, now)
        host_commands.on_loaded(self.world, now)
        self.world.timers.set(("collect",), now.mono_s + COLLECT_FIRST_S)

    def handle(self, event: Connected | Disconnected | Incoming | fx.ShellEvent, now: Now) -> None:
        """Take one event. Never raises for what came over the wire."""
        due_s = self.world.timers.next_deadline()
        if self.world.connected and due_s is not None and now.mono_s - due_s > LATE_S:
            presence.on_listening(self.world, now)  # this program was suspended
        if isinstance(event, Incoming):
            self._on_message(event, now)
        else:
            self._on_local(event, now)
        for key in self.world.timers.due(now.mono_s):
            self._on_timer(key, now)
        self._now = now

    def take(self) -> tuple[list[Change | Record], list[fx.Effect]]:
        """Assign jobs; return the changes to commit, and the effects to perform afterwards."""
        world = self.world
        assignment.settle(world, self._now)
        effects = world.take_out()
        records, world.record_changes = world.record_changes, []
        return [*world.book.take_changes(), *records], effects

    def next_deadline(self) -> float | None:
        """Return when a `Tick` is wanted (monotonic seconds), or none."""
        return self.world.timers.next_deadline()

    def inherit(self, other: Core) -> None:
        """Take over what `other` knew of hosts; jobs, plan and answers come from the ledger."""
        mine, theirs = self.world, other.world
        mine.hosts, mine.session = theirs.hosts, theirs.session
        mine.connected = theirs.connected
        mine.dropped, mine.refused = theirs.dropped, theirs.refused
        mine.broker_refused, mine.manifest_fault = theirs.broker_refused, theirs.manifest_fault
        mine.manifest_changed = theirs.manifest_changed
        mine.evidence, mine.trainers = theirs.evidence, theirs.trainers
        mine.edited = theirs.edited
        mine.has_rival = theirs.has_rival
        mine.crl = theirs.crl
        mine.parts_opened = theirs.parts_opened  # what comes of an earlier opening is none of ours
        self._returned, self._before, self._others = other._returned, other._before, other._others
        presence.on_inherited(mine, self._now)

    def known(self) -> Catalogue:
        """Return the trainer of each known model, and the datasets."""
        return plan_changes.known(self.world)

    def goodbye(self) -> m.Status:
        """Return the status to leave with."""
        return self._status("offline", "goodbye", self.world.session)

    def will(self, session: str) -> m.Status:
        """Return the status that the broker publishes when the connection `session` dies."""
        return self._status("offline", "lost", session)

    def _on_local(self, event: Connected | Disconnected | fx.ShellEvent, now: Now) -> None:
        world = self.world
        self._returned |= isinstance(event, Disconnected) and world.session != ""
        match event:
            case Connected(session):
                world.session, world.connected = session, True
                # It may be another one; what it has retained comes.
                world.broker_refused = None
                self._birth(now)
                presence.on_listening(world, now)
            case fx.Collected(kept):
                world.stored.update(kept)
            case fx.ResultsFound():
                downloads.on_results(world, event, now)
            case fx.SignaturesChecked():
                requests.on_checked(world, event, now)
            case fx.ManifestRead() | fx.ManifestRefused():
                self._on_manifest(event, now)
            case fx.ManifestChanged(how):
                world.manifest_changed = how
            case fx.ReloadAsked():
                world.do(fx.ReadManifest(self.known()))
            case fx.JournalRead(_, crl):
                if crl != world.crl:
                    world.crl = crl
                    programs.trust_anew(world)
                certificate_commands.on_journal(world, event, now)
            case Disconnected():
                world.connected = False
                presence.on_disconnected(world, now)
            case fx.Tick():
                pass
            case _:
                self._on_disk(event, now)

    def _on_disk(self, event: fx.ShellEvent, now: Now) -> None:
        """Something has come of an artifact."""
        world = self.world
        match event:
            case fx.PartOpened(artifact_id, have, part):
                uploads.on_part_opened(world, artifact_id, have, part, now)
            case fx.PartWritten(artifact_id, part, length):
                uploads.on_part_written(world, artifact_id, part, length, now)
            case fx.PartFailed():
                uploads.on_part_failed(world, event, now)
            case fx.PartStored(artifact_id, size_bytes):
                uploads.on_part_stored(world, artifact_id, size_bytes, now)
                pushes.on_stored(world, artifact_id)
            case fx.BundleFiled(artifact_id):
                filing.on_filed(world, artifact_id, now)
            case fx.BundleRefused(artifact_id):
                filing.on_refused(world, artifact_id, now)
            case fx.ArtifactLost(artifact_id):
                uploads.on_artifact_lost(world, artifact_id)

    def _birth(self, now: Now) -> None:
        """State everything again: the broker may have forgotten all of it."""
        world = self.world
        birth = self._status("online", "birth", world.session)
        world.publish(world.topics.coordinator_status(), birth, retain=True)
        for job in world.book.in_claim_order():
            world.announce(job, now)
        world.timers.set(("summary",), now.mono_s)
        for job_id in world.claims:
            world.timers.set(("assign", job_id), now.mono_s)

    def _status(self, state: str, reason: str, session: str) -> m.Status:
        settings = self.world.settings
        return m.Status.model_validate(
            {
                "state": state,
                "reason": reason,
                "session": session,
                "instance": settings.instance,
                "boot_id": settings.boot_id,
            }
        )

    def _on_manifest(self, event: fx.ManifestRead | fx.ManifestRefused, now: Now) -> None:
        who = user_of(event.client) if event.client else "coordinator"
        self.world.manifest_changed = NONE  # whatever came of it: it has been read
        if isinstance(event, fx.ManifestRead):
            found = plan_changes.take_plan(self.world, event.plan, now, who)
            what, is_news = cause("plan", **found.counts()), not found.is_empty()
            data = {**plan_changes.told(found), **plan_changes.doubts(self.world, event.plan)}
            response = m.OperatorResponse(id=event.request_id or "-", ok=True, data=data)
            self.world.manifest_fault = NONE
            self.world.do(fx.Tell(f"the manifest was read: {in_words(what)}"))
        else:
            errors = [asdict(one) for one in event.problems[:100]]
            response = m.OperatorResponse(
                id=event.request_id or "-", ok=False, code="refused",
                why={"code": "manifest_errors"}, data={"errors": errors},
            )  # fmt: skip
            what, is_news = _faults(event), True
            self.world.manifest_fault = what
        if event.client:
            requests.on_reloaded(self.world, event.client, response, now, what)
        elif is_news:
            outcome: Literal["done", "refused"] = "done" if response.ok else "refused"
            self.world.remember(Action(now.text(), who, "reload", outcome, what))

    def _on_timer(self, key: tuple[str, ...], now: Now) -> None:
        world = self.world
        match key:
            case ("assign", job_id):
                assignment.send_claim(world, job_id, now)
            case ("lease", job_id):
                leases.on_expired(world, job_id, now)
            case ("stop", host, job_id, attempt):
                stopping.send(world, (host, job_id, int(attempt)), now)
            case ("release", host, job_id, attempt):
                give_back.send(world, (host, job_id, int(attempt)), now)
            case ("snooze" | "snooze-over", host):
                host_commands.on_alarm(world, host, now)
            case ("silence", host):
                presence.on_silence(world, host, now)
            case ("birth", host):
                presence.on_birth_due(world, host, now)
            case ("upload", artifact_id):
                uploads.on_upload_timer(world, artifact_id, now)
            case ("download", client):
                downloads.on_timer(world, client, now)
            case ("rows" | "summary" | "collect" | "filed" | "unfiled" as what,):
                self._on_own_timer(what, now)
            case ("alone" | "holdback" | "retry" | "waiting", *_):
                assignment.on_wait_over(world, key)

    def _on_own_timer(self, what: str, now: Now) -> None:
        """Something is due that is of no host and no job."""
        match what:
            case "rows":
                self.world.announce_rest(now)
            case "summary":
                self._publish_summary()
            case "collect":
                stored_artifacts.collect(self.world, now)
            case _:
                filing.on_timer(self.world, what, now)

    def _publish_summary(self) -> None:
        world = self.world
        hosts = {str(key): int(str(count)) for key, count in requests.host_counts(world).items()}
        summary = m.Summary(
            jobs=world.book.counts(), hosts=hosts, dropped=dict(world.dropped),
            paused=world.fleet.paused, no_room=filing.all_lack(world), plan=world.plan.name,
        )  # fmt: skip
        world.publish(world.topics.summary(), summary, retain=True)

    def _on_message(self, message: Incoming, now: Now) -> None:
        try:
            topic = self.world.topics.parse(message.topic)
        except BadTopic as error:
            self.world.drop("unknown", str(error))
            return
        try:
            if topic.kind is Kind.COORDINATOR_STATUS and message.payload:
                self._on_own_status(
                    m.decode(m.STATUS, message.payload), now, retained=message.retained
                )
            else:
                incoming.on_message(self.world, topic, message, now)
        except (BadMessage, BadStream) as error:
            self.world.drop(topic.kind.value, f"from {topic.host or 'somebody'}: {error}")
        except ValidationError as error:
            # It fitted, and yet no answer could be made of it: that is garbage as well.
            self.world.drop(topic.kind.value, f"from {topic.host}: {error.title} cannot be built")

    def _on_own_status(self, status: m.Status, now: Now, *, retained: bool) -> None:
        # A late will of an earlier session of ours must not stand as the last word.
        ours = status.session == self.world.session
        if status.instance != self.world.settings.instance:
            self._look_at_another(status, retained=retained)
        if self.world.session and status.state == "offline" and not ours:
            self._birth(now)

    def _look_at_another(self, status: m.Status, *, retained: bool) -> None:
        """Warn of another coordinator, once; an earlier process of this one, or its will, is none.

        Two throw each other off a broker that knows them by one name, and never hear each other
        live: what the other has left there since our own birth tells.
        """
        if not self._returned and (retained or status.state == "offline"):
            self._before.append(status.session)
        elif status.session not in self._before and status.instance not in self._others:
            self._others.append(status.instance)
            self.world.has_rival = True
            text = (
                f"another coordinator (instance {status.instance}) uses the same broker and topic "
                "root; stop one of them, or give it another root with --root"
            )
            self.world.do(fx.Warn(text))


def _faults(event: fx.ManifestRefused) -> Cause:
    return cause("faults", text=str(event.problems[0])[:300], more=len(event.problems) - 1)


def _waited_s(world: World, job: Job, now: Now) -> float:
    """For how long a job has been pending before this start, by the wall clock, within reason."""
    since_s = seconds_of(job.pending_since) or now.wall_s
    return min(max(0.0, now.wall_s - since_s), world.grace_s())
