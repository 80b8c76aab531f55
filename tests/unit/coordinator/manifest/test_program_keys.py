"""Jobs of programs in a manifest: which program is meant, and what of it a job takes over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.protocol import messages as m
from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.diff import Known, change, difference
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.reader import parse_manifest, read_job
from tests.harness.programs import NEW, OLD, OTHER, trainer

PATH = Path("plan.toml")
HEAD = "schema_version = 1\n[[jobs]]\n"
KNOWN = {
    "mlp": builtin_trainers()["mlp"],
    f"vision@{OLD}": trainer(OLD),
    f"audio@{OTHER}": trainer(OTHER),
    f"vision@{NEW}": trainer(NEW, signer="ann"),
}


def load(lines: str, trainers: Mapping[str, m.TrainerInfo] = KNOWN) -> Plan:
    """Read a manifest whose only job has these lines."""
    return parse_manifest(PATH, HEAD + lines, trainers, {})


def problems(lines: str) -> list[tuple[int | None, str, str]]:
    """What is wrong with the job, as (line, key, message)."""
    with pytest.raises(ManifestError) as refusal:
        load(lines)
    return [(one.line, one.key, one.message) for one in refusal.value.problems]


def job_of(lines: str = "program = 'vision'\nparameters.lr = 0.1") -> JobSpec:
    (job,) = load(lines).jobs
    return job


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("vision", NEW), (f"vision@{NEW}", NEW), (f"vision@{OLD[:4]}", OLD), ("vision@a1b", NEW),
        ("audio", OTHER),
    ],
)  # fmt: skip
def test_a_name_means_the_newest_and_a_digests_beginning_means_that_one(
    text: str, digest: str
) -> None:
    job = job_of(f"program = '{text}'\nparameters.lr = 0.1")
    assert (job.program_digest(), job.model) == (digest, text.partition("@")[0])
    assert (job.mode, job.hyper) == ("", {"lr": 0.1})


@pytest.mark.words
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vision@a1", f"may mean vision@{OLD[:12]}, vision@{NEW[:12]}; write more of it"),
        ("vison", "the fleet has no program 'vison'; did you mean 'vision'?"),
        ("vision@f", f"of this name it has vision@{OLD[:12]}, vision@{NEW[:12]}"),
        ("nothing.like.it", "`fleet programs list` shows all, `fleet push DIR` sends one"),
    ],
)
def test_a_program_that_is_not_plain_is_refused_with_what_there_is(text: str, words: str) -> None:
    ((line, key, message),) = problems(f"priority = 3\nprogram = '{text}'")
    assert (line, key) == (4, "program")
    assert words in message


@pytest.mark.parametrize(
    ("lines", "line", "key", "words"),
    [
        ("program = 'vision'\nparameters.lr = 0.1\nmodel = 'mlp'", 5, "model",
         "does not go with program = 'vision'"),
        ("program = 'vision'\nparameters.lr = 0.1\nhyper.lr = 0.2", 5, "hyper",
         "does not go with program = 'vision'"),
        ("model = 'mlp'\nmode = 'oracle'\nparameters.lr = 0.1", 5, "parameters",
         "is a program's"),
        ("program = 'vision'\nparameters.lr = 5", 4, "parameters.lr", "at most 1"),
        ("program = 'vision'\nparameters.lr = 0.1\nparameters.epoch = 3", 5, "parameters.epoch",
         "did you mean 'epochs'"),
        ("program = 'vision'\nparameters.lr = 0.1\nmode = 'oracle'", 5, "mode",
         "vision reads no prepared data; leave this out"),
    ],
)  # fmt: skip
def test_a_fault_names_its_line_and_the_key_that_was_written(
    lines: str, line: int, key: str, words: str
) -> None:
    found = problems(lines)
    assert [one[:2] for one in found] == [(line, key)]
    assert words in found[0][2]


def test_parameters_that_are_no_table_are_told_by_the_key_that_was_written() -> None:
    line, key, message = problems("program = 'vision'\nparameters = 3")[0]
    assert (line, key) == (4, "parameters")
    assert "must be a table" in message


def test_a_parameter_without_a_default_has_to_be_set() -> None:
    ((_, key, message),) = problems("program = 'vision'")
    assert key == "parameters.lr"
    assert "missing" in message


def test_a_job_needs_at_least_what_its_program_needs() -> None:
    """Of each amount the larger counts; a job may ask for more, not for less."""
    least = m.Needs(require_cuda=True, min_ram_gib=4.0, min_cores=2)
    known = {f"vision@{OLD}": trainer(OLD, needs=least)}
    more = "min_ram_gib = 1\nmin_cores = 8\nmin_disk_gib = 3"
    (job,) = load(f"program = 'vision'\nparameters.lr = 0.1\n{more}", known).jobs
    assert job.needs == m.Needs(require_cuda=True, min_ram_gib=4.0, min_cores=8, min_disk_gib=3.0)


def test_where_nobody_tells_what_the_fleet_has_any_program_and_dataset_will_do() -> None:
    text = f"{HEAD}program = 'audio@12'\nparameters.lr = 5\ndata.train = 'cifar'"
    (job,) = parse_manifest(PATH, text, {}).jobs
    assert (job.model, job.name, [one.name for one in job.data]) == ("audio", "audio", ["train"])
    with pytest.raises(ManifestError) as refusal:
        parse_manifest(PATH, f"{HEAD}program = 'audio'\nmode = 'oracle'", {})
    assert [one.key for one in refusal.value.problems] == ["mode"]


def test_a_job_is_the_same_by_the_digest_and_the_parameters() -> None:
    """Who has signed the program decides nothing of the result."""
    first = job_of()
    by_ann = {f"vision@{NEW}": trainer(NEW)}
    (unsigned,) = load("program = 'vision'\nparameters.lr = 0.1", by_ann).jobs
    assert first.program != unsigned.program
    assert first.job_id == unsigned.job_id
    older = job_of(f"program = 'vision@{OLD}'\nparameters.lr = 0.1")
    other = job_of("program = 'vision'\nparameters.lr = 0.2")
    assert len({first.job_id, older.job_id, other.job_id}) == 3


def test_a_program_that_was_edited_makes_another_job() -> None:
    """The entry is the same, and the digest is not: the reload says which it was and is."""
    lines = "name = 'a'\nprogram = 'vision'\nparameters.lr = 0.1"
    (before,) = load(lines, {f"vision@{OLD}": trainer(OLD)}).jobs
    (step,) = difference([Known(before, "completed", in_plan=True)], load(lines), {}).steps
    assert step.action == "replaced"
    assert step.changes == (change("program", OLD[:12], f"{NEW[:12]}, signed by ann"),)
    faster = load(lines.replace("0.1", "0.2"), {f"vision@{OLD}": trainer(OLD)})
    (step,) = difference([Known(before, "completed", in_plan=True)], faster, {}).steps
    assert step.changes == (change("parameters.lr", 0.1, 0.2),), "as the manifest calls it"


def test_a_program_that_somebody_else_signed_is_taken_over() -> None:
    """The job stays; hosts judge it by the new signature."""
    lines = "program = 'vision'\nparameters.lr = 0.1"
    (before,) = load(lines, {f"vision@{NEW}": trainer(NEW)}).jobs
    (step,) = difference([Known(before, "pending", in_plan=True)], load(lines), {}).steps
    assert step.action == "changed"
    assert step.changes == (change("program", NEW[:12], f"{NEW[:12]}, signed by ann"),)


def test_a_job_beside_the_manifest_names_a_program_too() -> None:
    job = read_job({"program": "vision", "parameters": {"lr": 0.1}}, KNOWN)
    assert job.program_digest() == NEW
    assert job.name == f"vision-{job.job_id[:8]}"
    with pytest.raises(ManifestError, match=r"parameters\.lr"):
        read_job({"program": "vision", "parameters": {"lr": "much"}}, KNOWN)
