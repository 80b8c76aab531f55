"""The key `data` of a job: which dataset is meant, and which names its trainer reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.jobs.plan_entries import JobSpec, Plan, spec_from_json, spec_to_json
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.diff import Known, changes_in_words, difference
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.reader import parse_manifest
from tests.harness.datasets import dataset
from tests.harness.programs import NEW, trainer

OLD, NEWER, OTHER = "a1a" + "0" * 61, "a1b" + "0" * 61, "c3" * 32
TITLES = (("cifar", OLD), ("mnist", OTHER), ("cifar", NEWER))
DATASETS = {f"{name}@{digest}": dataset(name, digest) for name, digest in TITLES}
READS = trainer(NEW).model_copy(update={"data": ("train", "test")})
TRAINERS = {
    "mlp": builtin_trainers()["mlp"],
    "own": m.TrainerInfo(hyper_schema={}, telemetry=False, version="1"),
    f"vision@{NEW}": READS,
}
HEAD = "schema_version = 1\n[[jobs]]\n"
PROGRAM = "program = 'vision'\nparameters.lr = 0.1"
BUILT_IN = "model = 'mlp'\nmode = 'oracle'"


def load(lines: str) -> Plan:
    """Read a manifest whose only job has these lines."""
    return parse_manifest(Path("plan.toml"), f"{HEAD}{lines}", TRAINERS, DATASETS)


def job_of(lines: str) -> JobSpec:
    (job,) = load(lines).jobs
    return job


def problems(lines: str) -> list[tuple[int | None, str, str]]:
    """What is wrong with the job, as (line, key, message)."""
    with pytest.raises(ManifestError) as refusal:
        load(lines)
    return [(one.line, one.key, one.message) for one in refusal.value.problems]


@pytest.mark.parametrize(
    ("text", "digest"), [("cifar", NEWER), ("cifar@a1a", OLD), (f"cifar@{NEWER}", NEWER)]
)
def test_a_name_means_the_newest_and_a_digests_beginning_means_that_one(
    text: str, digest: str
) -> None:
    job = job_of(f"{PROGRAM}\ndata.train = '{text}'\ndata.test = 'mnist'")
    assert job.data == (dataset("test", OTHER), dataset("train", digest))
    assert spec_from_json(spec_to_json(job)) == job, "as the ledger keeps it"


def test_a_built_in_trainer_may_read_prepared_data_of_the_fleet() -> None:
    job = job_of(f"{BUILT_IN}\ndata.prepared = 'cifar'")
    assert job.data == (dataset("prepared", NEWER),)
    assert job.job_id != job_of(BUILT_IN).job_id


def test_a_job_is_the_same_by_the_digests_of_what_it_reads() -> None:
    """A name that means another version is another job; how it was written decides nothing."""
    first, same, other = (
        job_of(f"{PROGRAM}\ndata.train = '{text}'\ndata.test = 'mnist'").job_id
        for text in ("cifar", "cifar@a1b", "cifar@a1a")
    )
    assert first == same != other


@pytest.mark.words
@pytest.mark.parametrize(
    ("lines", "line", "key", "words"),
    [
        (f"{PROGRAM}\ndata.train = 'cifer'\ndata.test = 'mnist'", 5, "data.train",
         "the fleet has no dataset 'cifer'; did you mean 'cifar'?"),
        (f"{PROGRAM}\ndata.train = 'cifar@a1'\ndata.test = 'mnist'", 5, "data.train",
         f"may mean cifar@{OLD[:12]}, cifar@{NEWER[:12]}; write more of it"),
        (f"{PROGRAM}\ndata.train = 'cifar'", None, "data.test", "missing; write data.test ="),
        (f"{PROGRAM}\ndata.train = 'cifar'\ndata.test = 'mnist'\ndata.tset = 'mnist'", 7,
         "data.tset", "vision has no data of this name; did you mean 'test'?"),
        (f"{BUILT_IN}\ndata.train = 'cifar'", 5, "data.train",
         "mlp has no data of this name; known are: prepared"),
        ("model = 'own'\ndata.prepared = 'cifar'", 4, "data.prepared",
         "own has no data of this name; leave it out"),
        (f"{BUILT_IN}\ndata.prepared = './cifar'", 5, "data.prepared",
         "`fleet data push NAME ./cifar` prints the name"),
        (f"{BUILT_IN}\ndata = 'cifar'", 5, "data", "must be a table"),
        (f"{BUILT_IN}\ndata.prepared = 3", 5, "data.prepared", "must be a string"),
    ],
)  # fmt: skip
def test_a_fault_names_its_line_and_key(lines: str, line: int | None, key: str, words: str) -> None:
    found = problems(lines)
    assert [one[1] for one in found] == [key]
    assert line in {None, found[0][0]}
    assert words in found[0][2]


@pytest.mark.parametrize("datasets", [None, DATASETS])
def test_a_folder_is_no_program_of_a_manifest(datasets: Any) -> None:
    """Whether or not a coordinator has told which there are."""
    with pytest.raises(ManifestError) as refusal:
        parse_manifest(Path("plan.toml"), f"{HEAD}program = './shapes'", TRAINERS, datasets)
    (fault,) = refusal.value.problems
    assert (fault.line, fault.key) == (3, "program")
    assert "`fleet push ./shapes`" in fault.message


def test_another_version_of_a_dataset_replaces_the_job_and_tells_both() -> None:
    lines = f"name = 'a'\n{BUILT_IN}\ndata.prepared = 'cifar@a1a'"
    before = job_of(lines)
    after = load(lines.replace("a1a", "a1b"))
    (step,) = difference([Known(before, "completed", in_plan=True)], after, {}).steps
    assert step.action == "replaced"
    assert changes_in_words(step.changes) == (
        f'data ["prepared = {OLD[:12]}"] → ["prepared = {NEWER[:12]}"]'
    )
