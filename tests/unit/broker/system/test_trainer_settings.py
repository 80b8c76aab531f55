"""Trainers of a host's own: what their section may say, and what becomes of hyperparameters."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.process.command import Place, trainer_command
from agent.trainer.common.config import TRAINERS
from broker.errors import BadMessage, ConfigError
from broker.protocol.hyperschema import check_hyper
from broker.protocol.messages import CAPABILITY, Assign, Capability, TrainerInfo, decode, encode
from broker.system.trainer_settings import OwnTrainer, load_trainers
from tests.harness.coordinator import Fleet

PRELOAD = '[trainers.a]\ncommand = {}\nschema = "good.json"\npreload = ["torch"]\n'
BAD_PROPERTIES = """[trainers.a]
command = ["sh"]
[trainers.a.schema]
type = "object"
[trainers.a.schema.properties]
"--x" = {type = "integer"}
b = {type = "date"}
"""
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"max_depth": {"type": "integer"}}}


def load(tmp_path: Path, section: str, **more: Any) -> dict[str, OwnTrainer]:
    """The trainers of a configuration file with that text."""
    path = tmp_path / "fleet.toml"
    path.write_text(section, "utf-8")
    (tmp_path / "good.json").write_text(json.dumps(SCHEMA), "utf-8")
    return load_trainers(path, TRAINERS, {}, **({"programs": True} | more))


def test_a_schema_is_a_file_beside_or_a_table(tmp_path: Path) -> None:
    command = f"command = [{json.dumps(sys.executable)}]\n"
    table = '[trainers.a.schema]\ntype = "object"\n[trainers.a.schema.properties.max_depth]\n'
    for text in (
        f'[trainers.a]\n{command}schema = "good.json"\n',
        f'[trainers.a]\n{command}{table}type = "integer"\n',
    ):
        assert load(tmp_path, text)["a"].hyper_schema == SCHEMA | {"additionalProperties": False}
    assert load_trainers(None, TRAINERS, {"HOME": str(tmp_path)}, programs=True) == {}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[trainers]\na = 3\n", "[trainers.a]: must be a table"),
        ("[trainers.a]\n", "[trainers.a] command: missing; write command = ..."),
        ('[trainers.a]\ncomand = ["x"]\nschema = "good.json"\n', "did you mean 'command'?"),
        ('[trainers.a]\ncommand = []\nschema = "good.json"\n', "[trainers.a] command: "),
        ('[trainers.a]\ncommand = "x"\nschema = "good.json"\n', "[trainers.a] command: "),
        ('[trainers.a]\ncommand = ["/no"]\nschema = "good.json"\n', "'/no' is no program on this"),
        ('[trainers.a]\ncommand = ["sh"]\nschema = "no.json"\n', "no.json: No such file"),
        ('[trainers.a]\ncommand = ["sh"]\nschema = "fleet.toml"\n', "is not JSON"),
        ('[trainers.a]\ncommand = ["sh"]\n[trainers.a.schema]\n', 'type: must be "object"'),
        ('[trainers.gbt]\ncommand = ["sh"]\nschema = "good.json"\n', "gbt is built in"),
        ('[trainers."a b"]\ncommand = ["sh"]\nschema = "good.json"\n', "a name is a letter"),
        (PRELOAD.format('["sh", "train.py"]'), 'preload: needs a command such as ["python3", '),
        (PRELOAD.format('["python3", "-u", "train.py"]'), "preload: needs a command"),
        (BAD_PROPERTIES, "properties.--x: a name is lower-case"),
    ],
)
def test_a_fault_is_told_with_its_place_and_remedy(
    section: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as found:
        load(tmp_path, section)
    assert words in str(found.value)
    assert str(tmp_path) in str(found.value)


@pytest.mark.parametrize("depth", [100, 900, 5_000, 200_000])
def test_a_schema_that_is_nested_deeply_is_told_as_any_other_fault(
    depth: int, tmp_path: Path
) -> None:
    values = "[" * depth + "]" * depth
    deep = f'{{"type": "object", "properties": {{"a": {{"enum": {values}}}}}}}'
    (tmp_path / "deep.json").write_text(deep, "utf-8")
    with pytest.raises(ConfigError, match=r"\[trainers.a\]"):
        load(tmp_path, '[trainers.a]\ncommand = ["sh"]\nschema = "deep.json"\n')


def test_all_schemas_fit_into_one_message(tmp_path: Path) -> None:
    """A coordinator drops a larger one unread: nobody would know what the host is."""
    large = {"type": "object", "properties": {"a": {"enum": ["x" * 15_000]}}}
    (tmp_path / "large.json").write_text(json.dumps(large), "utf-8")
    table = f"[trainers.t{{}}]\ncommand = ['{sys.executable}']\nschema = 'large.json'\n"
    made = load(tmp_path, "".join(table.format(number) for number in range(12)))
    trainers = {name: TrainerInfo(hyper_schema=one.hyper_schema) for name, one in made.items()}
    known = Capability(
        session="s", instance="i", os="o", arch="a", python="3", physical_cores=4,
        ram_total_bytes=1, ram_available_bytes=1, trainers=trainers,
    )  # fmt: skip
    assert decode(CAPABILITY, encode(known)) == known
    with pytest.raises(ConfigError, match=r"\[trainers\]: schemas of \d+ bytes in all; at most"):
        load(tmp_path, "".join(table.format(number) for number in range(18)))


def test_a_coordinator_need_not_have_the_program(tmp_path: Path) -> None:
    section = '[trainers.a]\ncommand = ["/no"]\nschema = "good.json"\n'
    assert list(load(tmp_path, section, programs=False)) == ["a"]


def assign(**hyper: Any) -> Assign:
    """An assignment of a model of one's own."""
    return Assign(
        id="a", job_id="1b" * 32, attempt=1, instance="i", name="n", model="a", mode="oracle",
        hyper=hyper,
    )  # fmt: skip


@pytest.mark.parametrize("resumable", [True, False])
def test_values_are_single_arguments(tmp_path: Path, *, resumable: bool) -> None:
    names = ("max_depth", "name", "sizes", "on", "nothing")
    own = OwnTrainer.model_validate({
        "command": ["sh", "-c"], "resumable": resumable,
        "schema": {"type": "object", "properties": {name: {} for name in names},
                   "additionalProperties": False},
    })  # fmt: skip
    place = Place(tmp_path, tmp_path, tmp_path / "kept")
    given = assign(max_depth=3, name="--out-dir=/etc", sizes=[1, 2], on=True, nothing=None)
    command = trainer_command(given, {"a": own}, place, 2, resume=True)
    assert command[:2] == ["sh", "-c"]
    assert command[-5:] == [
        "--max-depth=3", "--name=--out-dir=/etc", "--nothing=null", "--on=true", "--sizes=[1, 2]",
    ]  # fmt: skip
    assert (f"--checkpoint-dir={tmp_path / 'kept'}" in command) == resumable
    assert ("--resume" in command) == resumable
    for hyper in ({"out_dir": "/etc"}, {"max-depth": 1}):
        with pytest.raises(BadMessage, match="unknown parameter"):
            trainer_command(assign(**hyper), {"a": own}, place, 2, resume=False)
    with pytest.raises(BadMessage, match="NUL"):  # where they travel by a pipe, it parts them
        trainer_command(assign(name="x\0--out-dir=/etc"), {"a": own}, place, 2, resume=False)


def test_hosts_that_differ_get_the_jobs_that_they_allow() -> None:
    fleet = Fleet()
    closed = {"type": "object", "additionalProperties": False}
    for name, key in (("old", "depth"), ("new", "max_depth")):
        schema = closed | {"properties": {key: {"type": "integer"}}}
        fleet.host(name).joins(trainers={"own": TrainerInfo(hyper_schema=schema)})
    known = fleet.core.known().trainers["own"].hyper_schema
    assert len(known["anyOf"]) == 2
    assert not list(check_hyper({"depth": 1}, known, "own"))
    assert not list(check_hyper({"max_depth": 1}, known, "own"))
    assert list(check_hyper({"depht": 1}, known, "own"))
