"""`after` and `inputs`: names of jobs become ids, and an id depends on those of its inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.protocol.messages import MAX_INPUTS
from coordinator.jobs.plan_entries import JobSpec, Plan, id_of, spec_from_json, spec_to_json
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.diff import Known, change, difference
from coordinator.manifest.manifest_keys import MAX_AFTER
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.reader import parse_manifest
from tests.harness.programs import NEW, trainer

KNOWN = {"gbt": builtin_trainers()["gbt"], f"vision@{NEW}": trainer(NEW)}
PRETRAIN = "name = 'pretrain'\nprogram = 'vision'\nparameters.lr = 0.1\n"
TUNE = "name = 'tune'\nprogram = 'vision'\nparameters.lr = 0.2\ninputs.weights = 'pretrain'\n"


def load(*jobs: str) -> dict[str, JobSpec]:
    """Return the jobs of a manifest with these tables, by name."""
    text = "schema_version = 1\n" + "".join(f"[[jobs]]\n{one}" for one in jobs)
    return {spec.name: spec for spec in parse_manifest(Path("plan.toml"), text, KNOWN, {}).jobs}


def gbt(name: str, *lines: str) -> str:
    seed = sum(map(ord, name))
    return f"name = '{name}'\nmodel = 'gbt'\nmode = 'oracle'\nseed = {seed}\n" + "\n".join(
        (*lines, "")
    )


def problems(*jobs: str) -> list[tuple[int | None, str, str, str]]:
    """What is wrong, as (line, job, key, message)."""
    with pytest.raises(ManifestError) as refusal:
        load(*jobs)
    return [(one.line, one.job, one.key, one.message) for one in refusal.value.problems]


def test_names_become_ids_wherever_the_jobs_stand() -> None:
    """The one that is named may come later, or have a later one itself."""
    chain = [
        gbt("c", "after = ['b', 'a', 'b']"),
        gbt("b", "after = ['a']"),
        gbt("a"),
        TUNE,
        PRETRAIN,
    ]
    jobs = load(*chain)
    assert jobs["c"].after == (jobs["b"].job_id, jobs["a"].job_id)
    assert jobs["b"].after == (jobs["a"].job_id,)
    assert jobs["tune"].inputs == {"weights": jobs["pretrain"].job_id}
    assert jobs["tune"].predecessors() == (jobs["pretrain"].job_id,)
    assert all(id_of(one) == one.job_id for one in jobs.values())


def test_an_input_decides_the_result_and_an_order_does_not() -> None:
    """What changes far ahead makes another job of whatever is made of it."""
    last = "name = 'last'\nprogram = 'vision'\nparameters.lr = 0.3\ninputs.x = 'tune'\n"
    before, after = load(PRETRAIN, TUNE, last), load(PRETRAIN + "seed = 7\n", TUNE, last)
    assert before["tune"].job_id != after["tune"].job_id
    assert before["last"].job_id != after["last"].job_id
    assert (
        load(gbt("a"), gbt("b"))["b"].job_id
        == load(gbt("a"), gbt("b", "after = ['a']"))["b"].job_id
    )


def test_links_are_kept_as_they_are() -> None:
    for spec in load(PRETRAIN, TUNE, gbt("b", "after = ['tune']")).values():
        assert spec_from_json(spec_to_json(spec)) == spec


def test_a_reload_tells_a_changed_order_by_the_names_of_jobs() -> None:
    jobs = load(gbt("a"), gbt("b"), gbt("c", "after = ['a']"))
    known = [Known(one, "pending", in_plan=True) for one in jobs.values()]
    changed = load(gbt("a"), gbt("b"), gbt("c", "after = ['a', 'b']"))
    (step,) = difference(known, Plan(tuple(changed.values())), {}).told()
    assert (step.action, step.changes) == ("changed", (change("after", ["a"], ["a", "b"]),))
    jobs, other = load(PRETRAIN, TUNE), load(PRETRAIN + "seed = 7\n", TUNE)
    known = [Known(one, "pending", in_plan=True) for one in jobs.values()]
    _, step = difference(known, Plan(tuple(other.values())), {}).told()
    old, new = (f"pretrain {one['pretrain'].job_id[:12]}" for one in (jobs, other))
    assert step.changes == (change("inputs", {"weights": old}, {"weights": new}),), "of one name"


def test_all_errors_come_at_once_each_with_line_job_and_key() -> None:
    found = problems(
        gbt("a", "after = ['b']"),
        gbt("b", "after = ['c']"),
        gbt("c", "after = ['a']"),
        gbt("me", "after = ['me']"),
        gbt("typo", "after = ['pretrane']"),
        PRETRAIN,
        TUNE.replace("'pretrain'", "'nobody-at-all'"),
        gbt("builtin", "inputs.weights = 'pretrain'"),
        TUNE.replace("tune", "odd")
        .replace("0.2", "0.9")
        .replace("inputs.weights", "inputs.wieghts"),
    )
    assert [one[:3] for one in found] == [
        (7, "a", "after"),
        (25, "me", "after"),
        (31, "typo", "after"),
        (40, "tune", "inputs.weights"),
        (46, "builtin", "inputs.weights"),
        (51, "odd", "inputs.wieghts"),
    ]


@pytest.mark.words
def test_a_program_that_declares_no_inputs_takes_any(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = KNOWN[f"vision@{NEW}"].model_copy(update={"inputs": ()})
    monkeypatch.setitem(KNOWN, f"vision@{NEW}", silent)
    jobs = load(PRETRAIN, TUNE.replace("weights", "wieghts"))
    assert jobs["tune"].inputs == {"wieghts": jobs["pretrain"].job_id}


def test_each_error_says_what_to_do() -> None:
    cycle = [gbt("a", "after = ['b']"), gbt("b", "after = ['c']"), gbt("c", "after = ['a']")]
    ((_, _, _, said),) = problems(*cycle)
    assert "a after b after c after a;" in said
    (typo,) = problems(PRETRAIN, gbt("typo", "after = ['pretrane']"))
    assert "did you mean 'pretrain'?" in typo[3]
    pinned = TUNE.replace("'vision'", f"'vision@{NEW}'")
    (undeclared,) = problems(PRETRAIN, pinned.replace("weights", "wieghts"))
    assert undeclared[3].startswith("vision has no input")
    assert "did you mean 'weights'?" in undeclared[3]
    (odd,) = problems(PRETRAIN, TUNE.replace("inputs.weights", "inputs.'a b'"))
    assert (odd[2], odd[1]) == ("inputs.a b", "tune")
    (builtin,) = problems(PRETRAIN, gbt("builtin", "inputs.weights = 'pretrain'"))
    assert "after = [...]" in builtin[3]


def test_a_cycle_of_inputs_is_one_error_and_two_cycles_are_two() -> None:
    """Who waits for a cycle without being in it is no cause."""
    one = "name = '{}'\nprogram = 'vision'\nparameters.lr = {}\ninputs.w = '{}'\n"
    found = problems(
        one.format("x", 0.1, "y"), one.format("y", 0.2, "x"), gbt("z", "after = ['x']"),
        gbt("p", "after = ['q']"), gbt("q", "after = ['p']"),
    )  # fmt: skip
    assert [(job, key) for _, job, key, _ in found] == [("x", "inputs.w"), ("p", "after")]


def test_there_is_a_limit_to_both() -> None:
    many = [gbt(f"j{number}", f"retries = {number % 90}") for number in range(3)]
    names = ", ".join(["'j1'"] * (MAX_AFTER + 1))
    inputs = "".join(f"inputs.w{number} = 'pretrain'\n" for number in range(MAX_INPUTS + 1))
    found = problems(
        *many,
        gbt("all", f"after = [{names}]"),
        PRETRAIN,
        TUNE.partition("inputs")[0] + inputs,
    )
    assert [(job, key) for _, job, key, _ in found] == [("all", "after"), ("tune", "inputs")]


def test_the_same_program_on_other_inputs_is_another_job() -> None:
    """With the same ones it is the same, and said to be so."""
    second = PRETRAIN.replace("pretrain", "second").replace("0.1", "0.5")
    other = TUNE.replace("'tune'", "'other'")
    jobs = load(PRETRAIN, second, TUNE, other.replace("'pretrain'", "'second'"))
    assert len({one.job_id for one in jobs.values()}) == 4
    ((_, job, key, _),) = problems(PRETRAIN, TUNE, other)
    assert (job, key) == ("other", "")


def test_a_broken_job_before_it_makes_no_further_error() -> None:
    found = problems(PRETRAIN + "priority = 'high'\n", TUNE, gbt("b", "after = ['pretrain']"))
    assert [(job, key) for _, job, key, _ in found] == [("pretrain", "priority")]
