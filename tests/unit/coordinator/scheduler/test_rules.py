"""Who may take a job, why not, and who should."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol import messages as m
from broker.protocol.reasons import from_dict, reason, uses_cuda
from coordinator.jobs.plan_entries import HostPolicy, JobSpec
from coordinator.jobs.reason_words import words
from coordinator.jobs.reasons import NATURES
from coordinator.scheduler.rules import HostView, choose, kind_of, reasons
from tests.harness.coordinator import with_id
from tests.harness.datasets import Made
from tests.harness.programs import DIGEST, program

GIB = 1024**3
DRAINED = reason("drained", host="pi", who="operator:x", at="2026-11-21T22:01:00.000Z")
CLOSED = {"properties": {"epochs": {}}, "additionalProperties": False}

PINNED = f'pinned = ["sha256:{DIGEST}"]'
OF_OWNER = "in [programs] of its fleet.toml"
OTHER = m.TrainerInfo(hyper_schema={}, version="a")
BARE = m.TrainerInfo(hyper_schema={}, telemetry=False)  # reads no prepared data


def job(name: str = "job", hyper: dict[str, Any] | None = None, **needs: Any) -> JobSpec:
    """A gbt job; `allowed` and `denied` are its hosts."""
    allowed, denied = needs.pop("allowed", ()), needs.pop("denied", ())
    made = JobSpec(
        job_id="", name=name, model="gbt", mode="oracle", hyper=hyper or {}, split_recipe="host",
        seed=0, n_resamples=1, priority=0, needs=m.Needs(**needs),
        allowed_hosts=allowed, denied_hosts=denied,
    )  # fmt: skip
    return with_id(made)


def gpu(free_gib: float | None = 8, total_gib: float | None = 12, index: int = 0) -> m.Gpu:
    """A GPU."""
    return m.Gpu(
        index=index,
        vram_total_bytes=None if total_gib is None else int(total_gib * GIB),
        vram_free_bytes=None if free_gib is None else int(free_gib * GIB),
    )


def host(name: str = "pi", *, ram_gib: float = 6, gpus: tuple[m.Gpu, ...] = (), cores: int = 4,
         slots: int = 1, busy: int = 0, policy: dict[str, Any] | None = None,
         beat: dict[str, Any] | None = None, **view: Any) -> HostView:  # fmt: skip
    """A host with 16 GiB in all; `beat` is its newest heartbeat."""
    heartbeat = None
    if beat is not None:
        heartbeat = m.Heartbeat(session="s", instance="i", seq=1, **beat)
    return HostView(
        host=name, online=view.pop("online", True), presence=view.pop("presence", "online"),
        capability=m.Capability(
            session="s", instance="i", os="o", arch="a", python="3", physical_cores=cores,
            ram_total_bytes=16 * GIB, ram_available_bytes=int(ram_gib * GIB), gpus=gpus,
            trainers=view.pop("trainers", {"gbt": m.TrainerInfo(hyper_schema=CLOSED)}),
            data_id=view.pop("data", "d"), slots=slots,
        ),
        heartbeat=heartbeat, policy=HostPolicy(name=name, **(policy or {})), used_slots=busy,
        **view,
    )  # fmt: skip


def carried(program: m.Program, allowed: m.ProgramsAllowed | None) -> tuple[JobSpec, HostView]:
    """A job of a program, and a host without a trainer or data whose owner allows these."""
    view = host(trainers={}, data=None)
    capability = view.capability.model_copy(update={"programs": allowed})
    return replace(job(), program=program), replace(view, capability=capability)


def why(one: JobSpec, view: HostView, left_s: float = 300) -> list[str]:
    return [reason.code for reason in reasons(one, view, left_s, 300)]


@pytest.mark.words
@pytest.mark.parametrize(
    ("of", "allowed", "said"),
    [
        (program(signer="ann"), None,
         "its owner lets no programs in; allow them by [programs] in its fleet.toml"),
        (program(), m.ProgramsAllowed(signed_by=("ann",)),
         f"its owner has not pinned this program; {PINNED} {OF_OWNER} lets it in"),
        (program(signer="ann"), m.ProgramsAllowed(signed_by=("op",), unsigned=True),
         f"accepts no programs signed by ann; signed_by {OF_OWNER} lets them in"),
        (program(environment="uv"), m.ProgramsAllowed(pinned=(DIGEST,)),
         "cannot make a program's environment: it has no uv"),
    ],
)  # fmt: skip
def test_a_host_that_takes_no_program_says_what_its_owner_would_write(
    of: m.Program, allowed: m.ProgramsAllowed | None, said: str
) -> None:
    (one,) = reasons(*carried(of, allowed), 300, 300)
    assert words(one) == said
    assert not NATURES[one.code].wait.passes, "only its owner can change that"


@pytest.mark.parametrize(
    "allowed",
    [
        m.ProgramsAllowed(pinned=(DIGEST,)), m.ProgramsAllowed(signed_by=("op", "ann")),
        m.ProgramsAllowed(pinned=(DIGEST,), signed_by=("op",)),
    ],
)  # fmt: skip
def test_a_program_needs_neither_a_trainer_nor_data_of_the_host(allowed: m.ProgramsAllowed) -> None:
    """Either is enough: that it is pinned, or that somebody signed it who is trusted."""
    assert why(*carried(program(signer="ann"), allowed)) == []


@pytest.mark.parametrize(
    ("one", "view", "code", "figures"),
    [
        (job(), host(online=False, presence="left"), "offline", {"presence": "left"}),
        (job(), host(joined=False), "joining", {"presence": "online"}),
        (job(), host(beat={"ram_available_bytes": GIB, "refuses": (m.Why(code="starting"),)}),
         "refuses", {"holds": [{"code": "starting"}]}),
        (job(), host(twins=True), "twins", {"tls": False}),
        (job(), host(untold=True), "rules", {}),
        (job(), host(restraints=(DRAINED,)), "drained", DRAINED.figures),
        (job(), host(busy=1), "busy", {"available": 1}),
        (job(), host(slots=3, busy=3), "busy", {"available": 3}),
        (job(), host(policy={"slots": 0}), "no-slots", {}),
        (job(allowed=("attic",)), host(), "not-allowed", {}),
        (job(denied=("pi",)), host(), "denied", {}),
        (job(), host(policy={"deny_jobs": ("gb*",)}),
         "deny-jobs", {"host": "pi", "pattern": "gb*"}),
        (job(), host(policy={"deny_jobs": ("jo?",), "allow_jobs": ("job",)}),
         "deny-jobs", {"host": "pi", "pattern": "jo?"}),
        (job(), host(policy={"allow_jobs": ("cnn*",)}), "allow-jobs", {"host": "pi"}),
        (job(), host(trainers={}), "no-trainer", {"said": "gbt"}),
        (job(hyper={"depth": 3}), host(), "hyper",
         {"key": "depth", "said": "unknown parameter of gbt; known are: epochs"}),
        (replace(job(), version="b"), host(trainers={"gbt": OTHER}),
         "other-version", {"key": "b", "said": "a"}),
        (job(), host(data=None), "no-data", {}),
        (job(min_cores=8), host(data=None, trainers={"gbt": BARE}),
         "cores", {"needed": 8, "available": 4}),
        (job(require_cuda=True), host(), "no-cuda", {}),
        (job(require_cuda=True), host(gpus=(gpu(),), policy={"cuda": False}),
         "cuda-off", {}),
        (job(min_cores=8), host(), "cores", {"needed": 8, "available": 4}),
        (job(min_ram_gib=32), host(), "ram", {"needed": 32, "available": 16}),
        (job(min_ram_gib=8), host(), "ram-now", {"needed": 8, "available": 6, "total": 16}),
        (job(min_ram_gib=4), host(beat={"ram_available_bytes": GIB}),
         "ram-now", {"needed": 4, "available": 1, "total": 16}),
        (job(min_disk_gib=2), host(beat={"ram_available_bytes": GIB, "disk_free_bytes": GIB}),
         "disk-now", {"needed": 2, "available": 1}),
        (job(), host(beat={"ram_available_bytes": GIB, "disk_free_bytes": 0}),
         "disk-now", {"needed": 0.1, "available": 0}),
        (job(min_ram_gib=4), host(policy={"max_ram_gib": 3.0}),
         "ram", {"needed": 4, "available": 3}),
        (job(require_cuda=True, min_vram_gib=16), host(gpus=(gpu(),)),
         "vram", {"needed": 16, "available": 12}),
        (job(require_cuda=True, min_vram_gib=10), host(gpus=(gpu(),)),
         "vram-now", {"needed": 10, "available": 8, "total": 12}),
        (job(require_cuda=True, min_vram_gib=5), host(gpus=(gpu(),), policy={"max_vram_gib": 4.0}),
         "vram", {"needed": 5, "available": 4}),
        (job(require_cuda=True, min_vram_gib=5), host(gpus=(gpu(None, None),)),
         "vram-unknown", {"needed": 5}),
        (job(prefer_cuda=True, min_vram_gib=10), host(gpus=(gpu(),)),
         "vram-now", {"needed": 10, "available": 8, "total": 12}),
    ],
)  # fmt: skip
def test_one_fault_is_one_reason(
    one: JobSpec, view: HostView, code: str, figures: dict[str, Any]
) -> None:
    """With its figures; words, a clause and a class are there for each."""
    (found,) = reasons(one, view)
    assert (found.code, found.figures) == (code, figures)
    assert choose(one, [view]) is None
    assert words(found) != code, "there are words for it"
    assert code in NATURES
    assert from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_every_reason_is_told() -> None:
    one = job(require_cuda=True, min_cores=64, min_ram_gib=99, allowed=("x",))
    assert len(why(one, host(online=False, busy=1))) == 6


def test_a_job_that_prefers_cuda_waits_its_grace_for_it() -> None:
    """A CUDA host takes it at once; another one when the grace is over."""
    one = job(prefer_cuda=True)
    (waits,) = reasons(one, host(), 212, 300)
    assert (waits.code, waits.figures) == ("grace", {"left_s": 212, "grace_s": 300})
    assert not why(one, host(), left_s=0)
    assert not why(one, host(gpus=(gpu(),)))
    assert uses_cuda(one.needs, host(gpus=(gpu(),)).figures)
    assert not uses_cuda(one.needs, host().figures)
    assert not uses_cuda(job().needs, host(gpus=(gpu(),)).figures)


def test_the_newest_figures_of_a_gpu_count() -> None:
    """The heartbeat's, not the capability's; and the best of several.

    Some drivers do not tell what is free: then what there is in all has to do.
    """
    view = host(
        gpus=(gpu(8), gpu(8, index=1)),
        beat={"ram_available_bytes": GIB, "gpus": (gpu(1), gpu(2, index=1))},
    )
    assert why(job(require_cuda=True, min_vram_gib=4), view)
    assert not why(job(require_cuda=True, min_vram_gib=2), view)
    assert not why(job(require_cuda=True, min_vram_gib=5), host(gpus=(gpu(None, 12),)))


def test_the_host_that_suits_is_chosen() -> None:
    """Its priority; then no GPU for who needs none; then where least is left over; then by name."""
    plain, cuda = host("plain"), host("cuda", gpus=(gpu(),))
    assert choose(job(), [cuda, plain]) is plain
    assert choose(job(prefer_cuda=True), [plain, cuda]) is cuda
    first = host("first", policy={"priority": 5}, gpus=(gpu(),))
    assert choose(job(), [plain, cuda, first]) is first
    small, large = host("small", ram_gib=2), host("large", ram_gib=12)
    assert choose(job(), [large, small]) is small
    assert choose(job(min_ram_gib=4), [large, small]) is large
    assert choose(job(), [host("b"), host("a")]).host == "a"
    assert choose(job(), [small, large], last_host="large") is large, "it may have a checkpoint"


views = st.builds(
    lambda n, ram, cores, gpus, busy, online, cuda: host(
        f"h{n}", ram_gib=ram, cores=cores, gpus=tuple(gpu(g, 12, i) for i, g in enumerate(gpus)),
        busy=busy, online=online, policy={"cuda": cuda},
    ),
    st.integers(0, 9), st.integers(0, 16), st.integers(1, 8),
    st.lists(st.integers(0, 12), max_size=2),
    st.integers(0, 1), st.booleans(), st.sampled_from([None, False]),
)  # fmt: skip
needs = st.fixed_dictionaries({
    "require_cuda": st.booleans(), "prefer_cuda": st.booleans(),
    "min_ram_gib": st.none() | st.integers(1, 16), "min_vram_gib": st.none() | st.integers(1, 12),
    "min_cores": st.none() | st.integers(1, 8),
})  # fmt: skip


@given(needs, st.lists(views, max_size=6), st.integers(-100, 300))
def test_the_decision_is_the_explanation(
    need: dict[str, Any], hosts: list[HostView], left_s: int
) -> None:
    """Chosen is one that nothing speaks against, whenever there is one."""
    one = job(**need)
    eligible = [view for view in hosts if not [*reasons(one, view, left_s)]]
    chosen = choose(one, hosts, left_s)
    assert (chosen is None) == (not eligible)
    assert chosen is None or chosen in eligible
    for view in eligible:
        assert view.online
        assert view.free_slots() > 0
        assert not (one.needs.require_cuda and not view.figures.cuda)


def test_twins_that_connect_with_tls_are_told_what_fits_that() -> None:
    """It is the certificate that has the name, and --host is refused."""
    twins = host(twins=True)
    until = {"certificate_expires_at": "2027-01-01T00:00:00.000Z"}
    secure = replace(twins, capability=twins.capability.model_copy(update=until))
    (found,) = reasons(job(), secure)
    assert (found.code, found.figures) == ("twins", {"tls": True})


def test_a_job_that_brings_its_data_needs_no_host_that_has_some() -> None:
    """It stands in another line than a job that does not."""
    brings = replace(job(), data=(Made({"a": b"x"}, name="prepared").dataset,))
    assert not [*reasons(brings, host(data=None))]
    assert [one.code for one in reasons(job(), host(data=None))] == ["no-data"]
    assert kind_of(brings) != kind_of(job())
