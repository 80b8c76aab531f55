"""A coordinator's core, driven without any IO: every message it sees or sends is encoded."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Incoming, Outgoing
from broker.protocol.signing import OperatorKey, signed_by
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from broker.stream.ranges import RangeSet
from coordinator.core.core_settings import CoreSettings
from coordinator.core.effects import (
    FindResults,
    ManifestRead,
    OpenPart,
    PartOpened,
    PartStored,
    ResultsFound,
    Tick,
    VerifyStored,
)
from coordinator.core.reactor import Core
from coordinator.jobs.jobs import Change, Job
from coordinator.jobs.plan_entries import JobSpec, Plan, id_of
from coordinator.jobs.records import (
    Action,
    BundleKept,
    BundlesFiled,
    FleetRecord,
    HostForgotten,
    HostRecord,
    Result,
)

HEX = "5a" * 32
OPERATOR = "operator:op/cli"
FULL = m.Objection(code="full", said="its disk")
ADAPTERS = {
    Kind.REQUEST: m.AGENT_REQUEST,
    Kind.GRANT: m.GRANT,
    Kind.PUSH_GRANT: m.GRANT,
    Kind.JOB: m.JOB_ROW,
    Kind.SUMMARY: m.SUMMARY,
    Kind.COORDINATOR_STATUS: m.STATUS,
    Kind.OPERATOR_RESPONSE: m.OPERATOR_RESPONSE,
}


def spec(
    name: str = "job", priority: int = 0, seed: int = 0, retries: int = 2, **needs: Any
) -> JobSpec:
    made = JobSpec(
        job_id="", name=name, model="gbt", mode="oracle", hyper={}, split_recipe="host",
        seed=seed, n_resamples=10, priority=priority, retries=retries,
        needs=m.Needs(**needs),
    )  # fmt: skip
    return with_id(made, of=name)


def with_id(spec: JobSpec, **hyper: Any) -> JobSpec:
    """The job with the id that it would have by these hyperparameters."""
    return replace(spec, job_id=id_of(replace(spec, hyper=hyper)))


class Fleet:
    """A core, its clock, its ledger in a dictionary, and hosts that speak to it."""

    def __init__(self, *specs: JobSpec, **settings: Any) -> None:
        self.topics = Topics()
        self.mono_s = 1000.0
        self.skew_s = 0.0  # by which the wall clock was set
        self.ids = 0
        settings = {"receipt_key": b"a key of the test's"} | settings
        self.settings = CoreSettings.model_construct(
            instance="c1", boot_id="b", manifest="plan.toml", **settings
        )
        self.ledger: dict[str, Job] = {}
        self.records: dict[str, HostRecord] = {}
        self.fleet_record = FleetRecord()
        self.actions: list[Action] = []
        self.history: list[tuple[str, str]] = []
        self.changes: list[Change] = []
        self.sent: list[tuple[Any, Any]] = []
        self.effects: list[Any] = []
        self.stored: dict[str, int] = {}
        self.results: tuple[Result, ...] = ()  # that the ledger would tell of any job
        self.bundles: list[BundleKept | BundlesFiled] = []
        self.start()
        self.plan(*specs)

    def new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    @property
    def now(self) -> Now:
        return Now(self.mono_s, 1.8e9 + self.mono_s + self.skew_s)

    def start(self) -> None:
        """Start (again) from what the ledger has."""
        self.core = Core(
            self.settings, self.topics, self.ledger, self.stored,
            rng=random.Random(1), new_id=self.new_id, now=self.now, records=self.records,
            fleet=self.fleet_record,
            answers={
                one.key: (one.at, one.answer) for one in self.actions if one.key and one.answer
            },
        )  # fmt: skip
        self.handle(Connected(f"session-{self.new_id()}"))

    def plan(self, *specs: JobSpec) -> None:
        self.handle(ManifestRead(Plan(specs)))

    def handle(self, event: Any) -> None:
        self.core.handle(event, self.now)
        changes, effects = self.core.take()
        for change in changes:
            if isinstance(change, HostRecord):
                self.records[change.host] = change
                continue
            if isinstance(change, HostForgotten):
                self.records.pop(change.host, None)
                continue
            if isinstance(change, FleetRecord):
                self.fleet_record = change
                continue
            if isinstance(change, BundleKept | BundlesFiled):
                self.bundles.append(change)
                continue
            if isinstance(change, Action):
                self.actions.append(change)
                continue
            assert isinstance(change, Change)
            before = self.ledger.get(change.after.job_id)
            assert before == change.before, "the mirror has left the ledger"
            self.ledger[change.after.job_id] = change.after
            self.history.append((change.after.spec.name, change.event.value))
            self.changes.append(change)
        for effect in effects:
            if isinstance(effect, Outgoing):
                topic = self.topics.parse(effect.topic)
                said = m.decode(ADAPTERS[topic.kind], effect.payload) if effect.payload else None
                self.sent.append((topic, said))
            elif isinstance(effect, VerifyStored):
                self.handle(PartStored(effect.artifact_id, 2000))
            elif isinstance(effect, FindResults):
                self.handle(ResultsFound(effect, self.results))
            else:
                self.effects.append(effect)

    def passes(self, seconds: float) -> None:
        """Time passes; every timer that comes due is served at its time."""
        end_s = self.mono_s + seconds
        while (due_s := self.core.next_deadline()) is not None and due_s <= end_s:
            self.mono_s = max(self.mono_s, due_s)
            self.handle(Tick())
        self.mono_s = end_s
        self.handle(Tick())

    def host(self, name: str = "pi") -> Host:
        return Host(self, name)

    def job(self, name: str = "job") -> Job:
        """A job, as the ledger has it."""
        return next(job for job in self.ledger.values() if job.spec.name == name)

    def hears_coordinator(
        self, instance: str, state: Any = "online", session: str = "", *, retained: bool = False
    ) -> None:
        """The status of another coordinator comes, or that of an earlier process of this one."""
        status = m.Status(
            state=state, session=session or f"s-{instance}", instance=instance, boot_id="b"
        )
        self.handle(Incoming(self.topics.coordinator_status(), m.encode(status), retained))

    def asks(self, ask: Any, client: str = OPERATOR) -> Any:
        """An operator asks, or bytes do; the answer, if one was published."""
        self.sent.clear()
        payload = ask if isinstance(ask, bytes) else m.encode(ask)
        self.handle(Incoming(self.topics.operator_request(client), payload))
        found = [said for topic, said in self.sent if topic.kind is Kind.OPERATOR_RESPONSE]
        return found[0] if found else None

    def signed(
        self, ask: Any, key: OperatorKey, client: str = OPERATOR, late_s: float = 0
    ) -> bytes:
        """A command as an operator publishes it, signed `late_s` from now."""
        topic = self.topics.operator_request(client)
        return m.encode(signed_by(key, topic, ask, self.now.wall_s + late_s))

    def ask(self, kind: Any, **fields: Any) -> Any:
        """An operator asks; the answer."""
        return self.asks(kind(id=self.new_id(), **fields))

    def why(self, name: str = "job") -> Any:
        """What `fleet why` has of a job."""
        return self.ask(m.AskWhy, job=name).data

    def reasons(self, name: str = "job") -> list[str]:
        """The codes of all that speaks against a job, on any host."""
        return [one["code"] for host in self.why(name)["hosts"] for one in host["reasons"]]

    def worker(self, name: str = "pi") -> Any:
        """A host, as `fleet workers` has it."""
        rows = self.ask(m.AskWorkers).data["workers"]
        return next(row for row in rows if row["host"] == name)

    def status(self) -> Any:
        """What `fleet status` has."""
        return self.ask(m.AskStatus).data

    def listed(self, **wanted: Any) -> Any:
        """A page of `fleet list`."""
        return self.ask(m.AskList, **wanted).data["jobs"]

    def took(self, kind: type[Any]) -> list[Any]:
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return found


def _held(job: tuple[str, int, str] | m.HeldJob) -> m.HeldJob:
    if isinstance(job, m.HeldJob):
        return job
    job_id, attempt, phase = job
    return m.HeldJob.model_validate({"job_id": job_id, "attempt": attempt, "phase": phase})


class Host:
    """An agent as the coordinator sees it."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, name
        self.session, self.instance, self.seq = f"s-{name}", f"i-{name}", 0
        self.boot_id = "b"

    def says(self, topic: str, message: m.Wire, *, retained: bool = False) -> None:
        event = Incoming(topic, m.encode(message), retained)
        self.fleet.handle(event)

    def joins(self, *jobs: tuple[str, int, str] | m.HeldJob, **capability: Any) -> Host:
        """Birth: status, capability, heartbeat, which lists (job id, attempt, phase)."""
        topics = self.fleet.topics
        self.status("online", "birth")
        fields: dict[str, Any] = {
            "physical_cores": 4, "ram_total_bytes": 8 * 2**30, "ram_available_bytes": 6 * 2**30,
            "trainers": {"gbt": m.TrainerInfo(hyper_schema={})}, "data_id": "d",
        }  # fmt: skip
        self.says(topics.capability(self.name), m.Capability(
            session=self.session, instance=self.instance, os="o", arch="a", python="3",
            **(fields | capability),
        ))  # fmt: skip
        self.beats(*jobs)
        return self

    def returns(self, *jobs: tuple[str, int, str], anew: bool = False, **capability: Any) -> Host:
        """Connect again, as the same process or as another one, and publish the birth."""
        self.session += "-x"
        self.instance += "-x" if anew else ""
        return self.joins(*jobs, **capability)

    def status(
        self, state: Any, reason: Any, session: str | None = None, **more: Any
    ) -> None:  # fmt: skip
        self.says(self.fleet.topics.status(self.name), m.Status(
            state=state, reason=reason, session=session or self.session,
            instance=self.instance, boot_id=self.boot_id, **more,
        ))  # fmt: skip

    def beats(self, *jobs: tuple[str, int, str] | m.HeldJob, **more: Any) -> None:
        """A heartbeat that lists (job id, attempt, phase), or all that is said of a job."""
        self.seq += 1
        self.says(self.fleet.topics.heartbeat(self.name), m.Heartbeat(
            session=self.session, instance=self.instance, seq=self.seq,
            ram_available_bytes=6 * 2**30,
            jobs=tuple(map(_held, jobs)), **more,
        ))  # fmt: skip

    def reports(self, kind: Any, job: Job, attempt: int | None = None, **more: Any) -> Any:
        """A report about a job; returns it."""
        report = kind(
            id=self.fleet.new_id(), session=self.session, instance=self.instance,
            job_id=job.job_id, attempt=attempt or job.attempt, **more,
        )  # fmt: skip
        self.says(self.fleet.topics.response(self.name), report)
        return report

    def heard(self, kind: type[Any]) -> list[Any]:
        """Take what was sent to this host."""
        found = [
            said for topic, said in self.fleet.sent
            if topic.host == self.name and isinstance(said, kind)
        ]  # fmt: skip
        self.fleet.sent = [
            one for one in self.fleet.sent
            if one[0].host != self.name or not isinstance(one[1], kind)
        ]  # fmt: skip
        return found

    def runs(self, name: str = "job") -> Job:
        assign = self.heard(m.Assign)[-1]
        self.reports(m.Accepted, self.fleet.job(name), request_id=assign.id)
        self.reports(m.Started, self.fleet.job(name), slot=0, pid=1)
        return self.fleet.job(name)

    def refuses(self, name: str = "job", why: m.Objection = FULL) -> m.Assign:
        """Refuse what was assigned; returns that."""
        assign: m.Assign = self.heard(m.Assign)[-1]
        self.reports(m.Refused, self.fleet.job(name), request_id=assign.id, reasons=(why,))
        return assign

    def trains(self, job: Job, epoch: int, epochs: int = 100, **more: Any) -> None:
        """The trainer of a job's newest attempt says how far it is."""
        said = {"attempt": job.attempt, "epoch": epoch, "epochs": epochs} | more
        self.says(self.fleet.topics.progress(self.name, job.job_id), m.Progress(**said))

    def finishes(self, job: Job, attempt: int | None = None, receipt: str = "") -> str | None:
        """Report it finished; returns the verdict, or `wanted` if the artifact is to be sent."""
        self.heard(m.Noted)
        report = self.reports(
            m.Finished, job, attempt, artifact_id=HEX, size_bytes=2000, chunk_bytes=1024,
            metrics={"auroc": 0.9}, receipt=receipt,
        )  # fmt: skip
        noted = [one for one in self.heard(m.Noted) if one.report_id == report.id]
        if noted:
            return noted[0].verdict
        return "wanted" if HEX in self.fleet.core.world.uploads else None

    def brings_home(self, job: Job, attempt: int | None = None, receipt: str = "") -> None:
        """Report it finished, upload the artifact, and have it stored."""
        assert self.finishes(job, attempt, receipt) == "wanted"
        self.uploads()
        self.fleet.handle(PartStored(HEX, 2000))

    def gives_back(self, job: Job, artifact_id: str = HEX, **more: Any) -> Any:
        """Report it released, with a checkpoint; returns the report."""
        fields = {"why": m.Why(code="leaving"), "size_bytes": 2000, "chunk_bytes": 1024} | more
        return self.reports(m.Released, job, artifact_id=artifact_id, **fields)

    def uploads(self) -> None:
        """Send what was announced last, once it is granted; the shell's part is played here."""
        for opened in self.fleet.took(OpenPart):
            self.fleet.handle(PartOpened(opened.artifact_id, RangeSet(), opened.part))
        for index, data in enumerate((b"x" * 1024, b"y" * 976)):
            self.fleet.handle(Incoming(self.fleet.topics.chunk(self.name, HEX, index), data))


def joined(*specs: JobSpec, **settings: Any) -> tuple[Fleet, Host]:
    """A fleet with one host, `pi`, that has just come."""
    fleet = Fleet(*specs, **settings)
    return fleet, fleet.host().joins()


def running(*specs: JobSpec, **settings: Any) -> tuple[Fleet, Host, Job]:
    """A fleet whose host `pi` runs `job`."""
    fleet, pi = joined(*(specs or (spec(),)), **settings)
    return fleet, pi, pi.runs()
