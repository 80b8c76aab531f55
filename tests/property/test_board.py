"""Whatever happens, the board gives each job to the host that a plain scan would give it to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from broker.protocol import messages as m
from coordinator.core.effects import ManifestRead
from coordinator.jobs.plan_entries import HostPolicy, JobSpec, Plan
from coordinator.jobs.states import JobState
from tests.harness.coordinator import Fleet, Host, with_id
from tests.harness.plainscan import compared

GIB = 2**30
HOSTS = ("h0", "h1", "h2", "h3")
hosts = st.sampled_from(HOSTS)
some_hosts = st.sampled_from(((), (), (), ("h0",), ("h1", "h2"), ("h3", "h3")))
patterns = st.sampled_from(((), (), (), ("job-1*",), ("job-?",), ("gbt",)))
memory_gib = st.sampled_from((None, None, 2.0, 6.0))


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    """One of 24 jobs, as a manifest may have it now."""
    number = draw(st.integers(0, 23))
    model, hyper = ("gbt", "mlp")[number % 2], {"depth": number % 5}
    made = JobSpec(
        job_id="", name=f"job-{number}", model=model, mode="oracle", hyper=hyper,
        split_recipe="host", seed=number,
        n_resamples=1, priority=draw(st.integers(0, 2)), retries=draw(st.integers(0, 2)),
        needs=m.Needs(
            require_cuda=draw(st.integers(0, 3)) == 0, prefer_cuda=draw(st.booleans()),
            min_ram_gib=draw(memory_gib), min_vram_gib=draw(memory_gib),
        ),
        allowed_hosts=draw(some_hosts), denied_hosts=draw(some_hosts),
    )  # fmt: skip
    return with_id(made, **hyper)


plans = st.lists(jobs(), unique_by=lambda job: job.job_id)
many = st.lists(jobs(), unique_by=lambda job: job.job_id, min_size=8)


@st.composite
def policies(draw: st.DrawFn) -> dict[str, HostPolicy]:
    """What the manifest says of some hosts."""
    named = draw(st.lists(hosts, unique=True, max_size=3))
    return {
        name: HostPolicy(
            name, priority=draw(st.integers(0, 1)), allow_jobs=draw(patterns),
            deny_jobs=draw(patterns), max_ram_gib=draw(memory_gib),
            cuda=draw(st.sampled_from((None, None, False))),
            slots=draw(st.sampled_from((None, None, 0, 1))),
        )
        for name in named
    }  # fmt: skip


def _schema(deepest: int) -> m.TrainerInfo:
    return m.TrainerInfo(hyper_schema={"properties": {"depth": {"maximum": deepest}}})


@st.composite
def capabilities(draw: st.DrawFn) -> dict[str, Any]:
    models = draw(st.sampled_from((("gbt",), ("gbt", "mlp"), ("gbt", "mlp"))))
    cards = draw(st.integers(0, 2))
    return {
        "trainers": {model: _schema(draw(st.sampled_from((2, 9)))) for model in models},
        "slots": draw(st.integers(1, 3)),
        "gpus": tuple(m.Gpu(index=one, vram_total_bytes=8 * GIB) for one in range(cards)),
        "physical_cores": draw(st.integers(1, 4)),
    }


class BoardMachine(RuleBasedStateMachine):
    """A coordinator's core, and whatever hosts, operators and time may do to it."""

    def __init__(self) -> None:
        super().__init__()
        self._compared = compared()
        self._compared.__enter__()
        self.fleet = Fleet()
        self.hosts: dict[str, Host] = {}

    def teardown(self) -> None:
        self._compared.__exit__(None, None, None)

    @initialize(specs=many, hosts=policies(),
                whats=st.lists(capabilities(), min_size=3, max_size=3))  # fmt: skip
    def begins(
        self, specs: list[JobSpec], hosts: dict[str, HostPolicy], whats: list[dict[str, Any]]
    ) -> None:
        """There is something to be done, and somebody to do it."""
        self.reload(specs, hosts, 60.0)
        for name, what in zip(HOSTS, whats):
            self.joins(name, what)

    @rule(specs=plans, hosts=policies(), grace_s=st.sampled_from((0.0, 60.0, 300.0)))
    def reload(self, specs: list[JobSpec], hosts: dict[str, HostPolicy], grace_s: float) -> None:
        """The plan changes: jobs come, go, are changed; policies too."""
        self.fleet.handle(ManifestRead(Plan(tuple(specs), hosts, grace_s)))

    @rule(spec=jobs())
    def is_asked_for(self, spec: JobSpec) -> None:
        """An operator asks for one more job."""
        table = {
            "name": f"{spec.name}-more", "model": spec.model, "mode": spec.mode,
            "hyper": dict(spec.hyper), "seed": 100 + spec.seed, "priority": spec.priority,
        }  # fmt: skip
        self.fleet.asks(m.AskRun(id=self.fleet.new_id(), job=table))

    @rule(name=hosts, what=capabilities())
    def joins(self, name: str, what: dict[str, Any]) -> None:
        """A host comes, or comes again as another process that is something else."""
        host = self.hosts.setdefault(name, self.fleet.host(name))
        host.session, host.instance = f"s-{self.fleet.new_id()}", f"i-{self.fleet.new_id()}"
        host.joins(**what)

    @rule(name=hosts, free_gib=st.integers(0, 8), refuses=st.booleans())
    def beats(self, name: str, free_gib: int, refuses: bool) -> None:
        """A host says how it is, and what it holds."""
        if name in self.hosts:
            held = [(job.job_id, job.attempt, "running") for job in self._held(name)]
            free = {"vram_free_bytes": free_gib * GIB, "vram_total_bytes": 8 * GIB}
            gpus = (m.Gpu(index=0, **free),) if free_gib % 2 else ()
            self.hosts[name].beats(
                *held, refuses=(m.Why(code="quiet"),) if refuses else (), gpus=gpus
            )

    @rule(name=hosts, reason=st.sampled_from(("goodbye", "lost")))
    def leaves(self, name: str, reason: str) -> None:
        if name in self.hosts:
            self.hosts[name].status("offline", reason)

    @rule(name=hosts, kind=st.sampled_from(("refused", "accepted", "started", "failed", "finished",
                                            "released", "handed over")))  # fmt: skip
    def reports(self, name: str, kind: str) -> None:
        """A host says what has become of a job."""
        for job in self._held(name)[:1]:
            self._report(self.hosts[name], job, kind)

    def _report(self, host: Host, job: Any, kind: str) -> None:
        match kind:
            case "refused":
                host.reports(
                    m.Refused,
                    job,
                    request_id="r",
                    reasons=(m.Objection(code="hot"),),
                )
            case "accepted":
                host.reports(m.Accepted, job, request_id="r")
            case "started":
                host.reports(m.Started, job, slot=0, pid=1)
            case "failed":
                host.reports(m.Failed, job, error="e", exit_code=1, transient=True)
            case "finished":
                host.finishes(job)
            case "handed over":
                host.finishes(job)
                host.uploads()
            case _:
                host.reports(m.Released, job, why=m.Why(code="leaving"))

    @rule(name=hosts)
    def stops(self, name: str) -> None:
        """A host has ended what it was told to stop."""
        jobs = {job.job_id: job for job in self.fleet.ledger.values()}
        for where, one, attempt in [*self.fleet.core.world.stops]:
            if where == name and one in jobs:
                job = replace(jobs[one], attempt=attempt)
                self.hosts[name].reports(m.Stopped, job, request_id="r")

    @rule(name=hosts, ask=st.sampled_from((m.AskDrain, m.AskResume, m.AskForget)))
    def operator_on_host(self, name: str, ask: Any) -> None:
        """An operator keeps a host from jobs, or gives it some again."""
        self.fleet.asks(ask(id=self.fleet.new_id(), host=name))

    @rule(off=st.booleans())
    def pause(self, off: bool) -> None:
        """An operator pauses the fleet, or lets it go on."""
        self.fleet.asks(m.AskPause(id=self.fleet.new_id(), off=off))

    @rule(number=st.integers(0, 23), ask=st.sampled_from((m.AskCancel, m.AskRequeue)))
    def operator_on_job(self, number: int, ask: Any) -> None:
        """An operator ends a job, or starts it again."""
        self.fleet.asks(ask(id=self.fleet.new_id(), job=f"job-{number}"))

    @rule(seconds=st.sampled_from((1.0, 40.0, 61.0, 700.0)))
    def time_passes(self, seconds: float) -> None:
        self.fleet.passes(seconds)

    @rule()
    def coordinator_restarts(self) -> None:
        self.fleet.start()

    @rule()
    def status(self) -> None:
        self.fleet.asks(m.AskStatus(id=self.fleet.new_id()))

    def _held(self, name: str) -> list[Any]:
        held = {JobState.CLAIMED, JobState.RUNNING}
        return [job for job in self.fleet.ledger.values() if job.state in held and job.host == name]


BoardMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)  # fmt: skip
TestBoard = BoardMachine.TestCase
