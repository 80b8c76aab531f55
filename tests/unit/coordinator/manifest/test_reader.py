"""Manifests: every fault in words, all at once; and what makes a job the same job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.messages import TrainerInfo
from coordinator.cli.check import check_command
from coordinator.jobs.plan_entries import id_of
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.manifest_file import MAX_BYTES, load_manifest, text_of
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.reader import parse_manifest
from tests.harness.coordinator import spec

PATH = Path("plan.toml")
BARE = {"type": "object", "properties": {"lr": {"type": "number"}}, "additionalProperties": False}
TRAINERS = builtin_trainers() | {"bare": TrainerInfo(hyper_schema=BARE, telemetry=False)}
GOOD = 'schema_version = 1\n[[jobs]]\nmodel = "mlp"\nmode = "oracle"\n'


def load(text: str | bytes) -> Any:
    """Read a manifest."""
    data = text.encode() if isinstance(text, str) else text
    return parse_manifest(PATH, text_of(PATH, lambda: data), TRAINERS)


def problems(text: str | bytes) -> list[tuple[str, str, str]]:
    """What is wrong with a manifest, as (job, key, message)."""
    with pytest.raises(ManifestError) as refusal:
        load(text)
    assert all(problem.file.endswith("plan.toml") for problem in refusal.value.problems)
    return [(one.job, one.key, one.message) for one in refusal.value.problems]


def said(text: str) -> str:
    """What is said of a manifest, a line for each fault."""
    with pytest.raises(ManifestError) as refusal:
        load(text)
    return str(refusal.value)


def test_defaults_hold_where_a_job_says_nothing() -> None:
    plan = load(
        "schema_version = 1\n[defaults]\nseed = 7\nsplit_recipe = 'time'\nn_resamples = 5\n"
        "train_hosts = ['b', 'a', 'b']\nprefer_cuda_grace_s = 12\n"
        "[hosts.pi]\nslots = 2\nmax_ram_gib = 3\ncuda = false\nallow_jobs = ['gbt*']\n"
        "[[jobs]]\nmodel = 'mlp'\nmode = 'oracle'\n"
        "[[jobs]]\nname = 'own'\nmodel = 'mlp'\nmode = 'oracle'\nseed = 8\ntrain_hosts = []\n"
        "min_ram_gib = 2\nhyper.lr = 0.01\n"
    )
    first, own = plan.jobs
    assert (first.name, first.seed, first.split_recipe, first.n_resamples) == (
        "mlp-oracle", 7, "time", 5
    )  # fmt: skip
    assert first.train_hosts == ("a", "b")
    assert (own.seed, own.train_hosts, own.needs.min_ram_gib, own.hyper) == (8, (), 2, {"lr": 0.01})
    assert plan.hosts["pi"].slots == 2
    assert plan.hosts["pi"].cuda is False
    assert plan.prefer_cuda_grace_s == 12


@pytest.mark.parametrize(
    ("text", "job", "key", "words"),
    [
        (GOOD.replace("mlp", "mpl"), "mpl-oracle", "model", "did you mean 'mlp'"),
        (GOOD.replace("oracle", "oracel"), "mlp-oracel", "mode", "'realistic' or 'oracle'"),
        (GOOD + "prioritty = 1", "mlp-oracle", "prioritty", "did you mean 'priority'"),
        (GOOD + "modle = 'gbt'", "mlp-oracle", "modle", "did you mean 'model'"),
        (GOOD + "priority = '1'", "mlp-oracle", "priority", "must be a whole number, not '1'"),
        (GOOD + "require_cuda = 1", "mlp-oracle", "require_cuda", "must be true or false"),
        (GOOD + "min_ram_gib = '8'", "mlp-oracle", "min_ram_gib", "must be a number"),
        (GOOD + "min_cores = 0", "mlp-oracle", "min_cores", "at least 1"),
        (GOOD + "allowed_hosts = 'pi'", "mlp-oracle", "allowed_hosts", "must be a list"),
        (GOOD + "allowed_hosts = ['PI']", "mlp-oracle", "allowed_hosts", "cannot be a host"),
        (GOOD + "allowed_hosts = ['a']\ndenied_hosts = ['a']", "mlp-oracle", "denied_hosts",
         "is in allowed_hosts as well"),
        (GOOD + "hyper.epoch = 3", "mlp-oracle", "hyper.epoch", "did you mean 'epochs'"),
        (GOOD + "hyper.lr = 5", "mlp-oracle", "hyper.lr", "at most 1"),
        (GOOD + "hyper.lr = 0", "mlp-oracle", "hyper.lr", "more than 0"),
        (GOOD + "hyper.lr = nan", "mlp-oracle", "hyper.lr", "must be"),
        (GOOD + "hyper.epochs = 2.5", "mlp-oracle", "hyper.epochs", "must be a whole number"),
        (GOOD + "hyper.epochs = true", "mlp-oracle", "hyper.epochs", "must be a whole number"),
        (GOOD + "hyper.lr = 2020-01-01", "mlp-oracle", "hyper.lr", "must be a number"),
        (GOOD + "train_hosts = ['-b']", "mlp-oracle", "train_hosts", "no leading '-'"),
        (GOOD + "split_recipe = 'folds'\nfolds = 3\nfold = 4", "mlp-oracle", "fold", "at most 3"),
        (GOOD + "folds = 1", "mlp-oracle", "folds", "2"),
        (GOOD + "folds = 3", "mlp-oracle", "folds", "split_recipe"),
        (GOOD + "name = 'a b'", "job 1", "name", "must be 1 to 64 of a-z, A-Z, 0-9"),
        (GOOD + "name = 'aux.first'", "aux.first", "name", "folder on Windows"),
        (GOOD + f"name = '{'a' * 64}'", "a" * 64, "name", "not look like an id"),
        ("schema_version = 1\n[[jobs]]\nmode = 'oracle'\n", "job 1", "model", "missing"),
        ("jobs = []", "", "schema_version", "write schema_version = 1"),
        ("schema_version = 2", "", "schema_version", "write schema_version = 1"),
        ("schema_version = 1.0", "", "schema_version", "write schema_version = 1"),
        ("schema_version = 1\njob = 3", "", "job", "did you mean 'jobs'"),
        ("schema_version = 1\njobs = 3", "", "jobs", "write [[jobs]]"),
        ("schema_version = 1\nhosts = 3", "", "hosts", "write [hosts.NAME]"),
        ("schema_version = 1\n[hosts.PI]\n", "", "[hosts.PI]", "cannot be a host"),
        ("schema_version = 1\n[hosts.pi]\nslot = 1", "", "[hosts.pi] slot", "did you mean 'slots'"),
        ("schema_version = 1\n[defaults]\nseed = -1", "", "[defaults] seed", "at least 0"),
        ("schema_version = 1\n[[jobs", "", "", "is not TOML"),
        (b"schema_version = \xff", "", "", "save it as UTF-8"),
        *(
            (f"name = {name}\n{GOOD}", "", "name", "1 to 64 printable characters")
            for name in ("3", "''", "' a'", f"'{'x' * 65}'", r'"a\u001b[2J"', r'"\u202ea"', "['a']")
        ),
    ],
)  # fmt: skip
def test_a_fault_names_job_key_and_remedy(
    text: str | bytes, job: str, key: str, words: str
) -> None:
    found = problems(text)
    assert [one for one in found if one[0] == job and one[1] == key and words in one[2]], found


@pytest.mark.words
def test_a_plan_may_have_a_name(tmp_path: Path) -> None:
    assert load(GOOD).name == ""
    assert load(f"name = 'été 2026: 夏 {'x' * 50}'\n{GOOD}").name.startswith("été 2026: 夏 xx")
    path = tmp_path / "plan.toml"
    for text, told in (
        (f"name = 'summer'\n{GOOD}", '1 job of "summer"'),
        (GOOD + GOOD[GOOD.index("[[") :] + "seed = 3\nname = 'b'\n", "2 jobs"),
    ):
        path.write_text(text, "utf-8")
        said = CliRunner().invoke(check_command, [str(path), "--offline"], standalone_mode=False)
        assert said.output == f"{path}: {told}, no errors\n"


def test_all_faults_are_told_at_once() -> None:
    found = problems(
        "schema_version = 3\n[defaults]\nseed = 'x'\n[hosts.pi]\nslots = 99\n"
        "[[jobs]]\nmodel = 'mlp'\nmode = 'both'\nhyper.epochs = -1\n"
        "[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\nhyper.max_depth = 99\n"
    )  # fmt: skip
    assert [key for _, key, _ in found] == [
        "schema_version", "[defaults] seed", "[hosts.pi] slots", "mode", "hyper.epochs",
        "hyper.max_depth",
    ]  # fmt: skip


def test_only_a_trainer_that_reads_telemetry_needs_a_mode() -> None:
    bare = "[[jobs]]\nmodel = 'bare'\n"
    plain = load(f"schema_version = 1\n{bare}").jobs
    text = f"schema_version = 1\n[defaults]\nsplit_recipe = 'folds'\nn_resamples = 5\n{bare}"
    assert load(text).jobs == plain
    assert [(job.name, job.mode) for job in plain] == [("bare", "")]
    assert load(f"schema_version = 1\n{bare}seed = 1\n").jobs[0].job_id != plain[0].job_id
    twice = "[[jobs]]\nmodel = 'gbt'\n" * 2
    found = problems(f"{GOOD}{bare}train_hosts = ['a']\nhyper.lr = 'x'\n{twice}")
    assert [(job, key) for job, key, _ in found] == [
        ("bare", "train_hosts"), ("bare", "hyper.lr"), ("gbt", "mode"), ("gbt", "mode"),
    ]  # fmt: skip
    told = {key: message for _, key, message in found}
    assert "[trainers.bare] of its hosts say telemetry = true" in told["train_hosts"]
    assert told["mode"] == 'missing; write mode = "oracle", or "realistic"'


def test_two_entries_of_one_job_or_one_name_are_both_named() -> None:
    """Equal in everything that decides the result, whatever else they say."""
    found = problems(GOOD + "[[jobs]]\nname = 'twin'\nmodel = 'mlp'\nmode = 'oracle'\n"
                     "priority = 9\n")  # fmt: skip
    ((job, _, message),) = found
    assert job == "twin"
    assert "mlp-oracle (on line 2)" in message
    found = problems(GOOD + "[[jobs]]\nmodel = 'mlp'\nmode = 'oracle'\nseed = 1\n")
    ((job, key, message),) = found
    assert (job, key) == ("mlp-oracle", "name"), "a name by default, as well"
    assert "'mlp-oracle' is the name of the job on line 2 as well" in message


def test_what_else_is_wrong_with_a_broken_job_is_told_with_it() -> None:
    found = problems(
        GOOD + "[[jobs]]\nmodel = 'mlp'\nmode = 'oracle'\nmin_ram_gib = -3\n"
        "allowed_hosts = ['No Host']\n"
        "[[jobs]]\nmode = 'oracle'\nname = 'mlp-oracle'\n"
        "[[jobs]]\nmodel = 'mlp'\nmode = 'oracle'\nname = 7\nallowed_hosts = 'x'\n"
    )  # fmt: skip
    assert [(job, key) for job, key, _ in found] == [
        ("mlp-oracle", "name"), ("mlp-oracle", "min_ram_gib"), ("mlp-oracle", "allowed_hosts"),
        ("mlp-oracle", "model"), ("mlp-oracle", "name"), ("job 4", "name"),
        ("job 4", "allowed_hosts"),
    ]  # fmt: skip
    assert found[1][2] == "must be more than 0, not -3"


@pytest.mark.parametrize("model", ["model = 'xyz'\n", "model = 3\n", ""])
def test_an_unknown_model_hides_no_other_error_of_its_job(model: str) -> None:
    """Its hyperparameters are told as far as any trainer would refuse them, and jobs apart."""
    job = f"[[jobs]]\nname = 'j{{}}'\n{model}mode = 'oracle'\nhyper.x = {{}}\n"
    found = problems("schema_version = 1\n" + "".join(
        job.format(number, value) for number, value in enumerate(("1", "2", "2020-01-01", "nan"))
    ))  # fmt: skip
    assert sorted((job, key) for job, key, _ in found) == sorted([
        *((f"j{number}", "model") for number in range(4)), ("j2", "hyper.x"), ("j3", "hyper.x"),
    ])  # fmt: skip


def test_hyperparameters_are_those_of_the_model_that_was_meant() -> None:
    """Whoever swaps two letters corrects all of the job at once."""
    found = problems(GOOD.replace("mlp", "mpl") + "hyper.epochs = 'many'\n")
    assert [(key, message) for _, key, message in found] == [
        ("model", found[0][2]),
        ("hyper.epochs", 'must be a whole number, not "many"'),
    ]  # fmt: skip
    assert "did you mean 'mlp'?" in found[0][2]


def test_what_can_be_read_of_a_broken_plan_is_handed_on() -> None:
    """With the hosts that its jobs name, for whoever knows which hosts there are."""
    with pytest.raises(ManifestError) as refusal:
        load(GOOD + "[[jobs]]\nmodel = 'gbt'\nmode = 'both'\ndenied_hosts = ['deks']\n")
    readable = refusal.value.readable
    assert readable is not None
    assert [(job.name, job.named_hosts()) for job in readable.jobs] == [
        ("mlp-oracle", ()), ("gbt-both", ("deks",))
    ]  # fmt: skip


def test_a_file_that_is_not_there_or_too_large_is_told(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="check the path"):
        load_manifest(tmp_path / "none.toml", TRAINERS)
    (tmp_path / "big.toml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ManifestError, match="split the plan"):
        load_manifest(tmp_path / "big.toml", TRAINERS)


def test_an_id_is_what_decides_the_result() -> None:
    base = replace(spec(), hyper={"a": 1, "b": 0.5}, train_hosts=("x", "y"))
    assert id_of(replace(base, hyper={"b": 0.5, "a": 1.0}, train_hosts=("y", "x"))) == id_of(base)
    others: list[dict[str, Any]] = [
        {}, {"model": "mlp"}, {"mode": "realistic"}, {"hyper": {"a": 2, "b": 0.5}},
        {"split_recipe": "time"}, {"train_hosts": ("x",)}, {"seed": 1}, {"folds": 3},
        {"folds": 3, "fold": 1}, {"folds": 4, "fold": 1},
    ]  # fmt: skip
    assert len({id_of(replace(base, **other)) for other in others}) == len(others)
    one = load(GOOD + "priority = 3\nmin_ram_gib = 1\nname = 'other'\nn_resamples = 1\n").jobs[0]
    assert one.job_id == load(GOOD).jobs[0].job_id


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail_otherwise(tmp_path_factory: Any, content: bytes) -> None:
    path = tmp_path_factory.mktemp("m") / "plan.toml"
    path.write_bytes(content)
    with pytest.raises(ManifestError):
        load_manifest(path, TRAINERS)


def test_hours_are_looked_at_whatever_else_is_wrong_with_their_host() -> None:
    text = (
        GOOD + '[hosts.desk]\nidle_only = "yes"\nquiet_hours = [\n"Sat",\n"Mo-Fr 08:00-18:00",\n]\n'
    )
    with pytest.raises(ManifestError) as refusal:
        load(text)
    assert [(one.key, one.line) for one in refusal.value.problems] == [
        ("[hosts.desk] idle_only", 6), ("[hosts.desk] quiet_hours", 7)
    ]  # fmt: skip
    assert "Mo-Fr 08:00-18:00" in refusal.value.problems[1].message
    many = GOOD + f"[hosts.desk]\nslot = 2\nquiet_hours = {['never'] * 999}\n"
    assert len(problems(many)) < 40


def test_errors_of_a_manifest_name_the_line_and_stand_in_its_order() -> None:
    lines = said(
        "schema_version = 1\n[[jobs]]\nmodel = 'mlp'\nmode = 'oracle'\nhyper.epoch = 3\n"
        "allowed_hosts = ['A B']\npriority = 'x'\nmin_cores = 0\n[[jobs]]\nmode = 'oracle'\n"
        "[[jobs]]\nmodel = 'cnn'\nmode = 'oracel'\n[hosts.pi]\nslot = 1\n",
    ).splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        f"plan.toml:{number}" for number in (5, 6, 7, 8, 9, 13, 15)
    ]
    assert lines[4].endswith(":9: job 2: model: missing; write model = ...")


@pytest.mark.parametrize("typed", ["[[job]]\nmodel = 'mlp'", "[job.one]", "job.one = 1", "job = 1"])
def test_an_unknown_key_of_the_top_is_found_however_it_was_written(typed: str) -> None:
    words = said(f"schema_version = 1\n\n{typed}\n")
    assert words == "plan.toml:3: job: unknown key; did you mean 'jobs'?"
