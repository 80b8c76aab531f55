"""`program.toml`: what is read from it, and what its author is told of each fault."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from broker.errors import ConfigError
from broker.programs.program_file import Program, read_program
from broker.protocol.hyperschema import check_hyper
from coordinator.cli.run import run_command

WHOLE = """\
name = "vision"
command = ["python", "train.py"]
environment = "uv"
resumable = true
description = "Small pictures"

[parameters]
lr = { type = "number", minimum = 1e-6, maximum = 1.0, default = 1e-3 }
epochs = { type = "integer", minimum = 1, default = 20 }
head = { enum = ["linear", "mlp"] }

[data]
train = "a folder of class folders with PNGs"
test-2 = ""

[needs]
min_vram_gib = 4
require_cuda = true
"""
LEAST = 'name = "least"\ncommand = ["python", "train.py"]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program's folder without its `program.toml`."""
    folder = tmp_path / "least"
    folder.mkdir()
    (tmp_path / "beside.py").touch()
    for name in ("train.py", "requirements.txt"):
        (folder / name).touch()
    return folder


def read(folder: Path, text: str) -> Program:
    (folder / "program.toml").write_text(text, "utf-8")
    return read_program(folder, {"mlp", "gbt"})


def faults(folder: Path, text: str) -> list[str]:
    """The faults of a `program.toml`, without its path."""
    with pytest.raises(ConfigError) as refusal:
        read(folder, text)
    path = str(folder / "program.toml")
    assert all(fault.startswith(path) for fault in refusal.value.faults)
    return [fault.removeprefix(path) for fault in refusal.value.faults]


def test_what_the_file_says_is_read(folder: Path) -> None:
    program = read(folder, WHOLE)
    assert (program.name, program.command) == ("vision", ("python", "train.py"))
    assert (program.environment, program.resumable) == ("uv", True)
    assert (program.description, [*program.data]) == ("Small pictures", ["train", "test-2"])
    assert (program.needs.min_vram_gib, program.needs.require_cuda) == (4.0, True)


@pytest.mark.parametrize("key", ["data", "inputs"])
def test_what_it_reads_has_a_name_that_fits_into_an_argument(folder: Path, key: str) -> None:
    told = faults(folder, f'{LEAST}[{key}]\n"a.b" = ""\nx = 3\n')
    assert [fault.split(": ")[:2] for fault in told] == [[":4", f"{key}.a.b"], [":5", f"{key}.x"]]


def test_what_the_file_leaves_out_has_defaults(folder: Path) -> None:
    program = read(folder, LEAST)
    assert (program.environment, program.resumable) == ("none", False)
    assert not program.parameters
    assert program.needs.model_dump(exclude_defaults=True) == {}


def test_a_job_gives_the_parameters_that_have_no_default_and_no_others(folder: Path) -> None:
    schema = read(folder, WHOLE).hyper_schema()

    def wrong(**hyper: object) -> dict[str, str]:
        return dict(check_hyper(hyper, schema, "vision"))

    assert wrong(head="linear", lr=0.5) == {}
    assert wrong() == {"head": "missing; vision needs it"}
    assert wrong(head="mlp", lr=2, width=3).keys() == {"lr", "width"}


def test_no_parameter_is_called_as_an_option_of_fleet_run(folder: Path) -> None:
    """`--priority 5` would set the job's priority, and the program would not learn of it."""
    names = {one.name for one in run_command.params if isinstance(one, click.Option)} | {"help"}
    for name in names - {"data", "input", "seed"}:
        text = f'{LEAST}[parameters]\n{name} = {{ type = "integer" }}\n'
        (fault,) = faults(folder, text)
        assert fault.startswith(f":4: parameters.{name}: `fleet run` has an option")


def test_the_seed_has_no_other_default_than_the_jobs(folder: Path) -> None:
    text = f'{LEAST}[parameters]\nseed = {{ type = "integer", default = SEED }}\n'
    assert read(folder, text.replace("SEED", "0")).parameters
    assert read(folder, text.replace(", default = SEED", "")).hyper_schema()["required"] == []
    (fault,) = faults(folder, text.replace("SEED", "7"))
    assert fault.startswith(":4: parameters.seed.default: must be left out")


def test_all_faults_are_told_at_once_in_the_order_of_the_file(folder: Path) -> None:
    text = """\
name = "mlp"
comand = ["x"]
environment = "conda"
resumable = 1
[parameters]
lr = { type = "number", minimum = 0, default = -1 }
resume = { type = "boolean" }
[needs]
min_vram = 4
"""
    assert faults(folder, text) == [
        ": command: missing; write command = ...",
        ":1: name: mlp is built in; choose another name",
        ":2: comand: unknown key; did you mean 'command'?",
        ":3: environment: must be 'uv' or 'none', not 'conda'",
        ":4: resumable: must be true or false, not 1",
        ":6: parameters.lr.default: must be at least 0, not -1",
        ":7: parameters.resume: the fleet has an argument of this name; choose another",
        ":9: needs.min_vram: unknown key; did you mean 'min_vram_gib'?",
    ]


@pytest.mark.parametrize(
    ("parameter", "fault"),
    [
        ("3", ": must be a table, not 3"),
        ('{ type = "float" }',
         ".type: must be one of integer, number, string, boolean, array, object, null"),
        ('{ type = ["number", "null"] }',
         ".type: must be one of integer, number, string, boolean, array, object, null"),
        ('{ type = "number", minimun = 1 }', ".minimun: unknown keyword; did you mean 'minimum'?"),
        ('{ type = "number", minimum = "1" }', '.minimum: must be a number, not "1"'),
        ('{ type = "string", maxLength = -1 }', ".maxLength: must be at least 0, not -1"),
        pytest.param("{ enum = [] }", ".enum: must be at least 1 item, not 0 items",
                     marks=pytest.mark.words),
        ('{ enum = ["a"], default = "b" }', '.default: must be "a", not "b"'),
        ('{ type = "integer", default = 1.5 }', ".default: must be a whole number, not 1.5"),
        ('{ type = "number", default = nan }',
         ": must hold finite numbers, strings, booleans, lists and tables: no dates"),
        ('{ type = "string", default = 2026-01-01 }',
         ": must hold finite numbers, strings, booleans, lists and tables: no dates"),
    ],
)  # fmt: skip
def test_a_faulty_parameter_is_told_with_its_key(folder: Path, parameter: str, fault: str) -> None:
    text = f"{LEAST}[parameters]\nx = {parameter}\n"
    assert faults(folder, text) == [f":4: parameters.x{fault}"]


def test_a_parameters_name_is_one_that_an_option_can_have(folder: Path) -> None:
    told = ": a name is lower-case letters, digits and '_'"
    text = f'{LEAST}[parameters]\nLr = {{ type = "number" }}\n"a: b" = {{ type = "number" }}\n'
    assert faults(folder, text) == [f":4: parameters.Lr{told}", f":5: parameters.a: b{told}"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ('"python train.py"', "must be a list"),
        ("[]", "has fewer than 1 entries"),
        ('["python", ""]', "should have at least 1 character"),
        ('["python", 3]', "must be a string, not 3"),
        ('["./train.sh"]', 'none of those is executable; name what runs it, such as ["sh", '),
        ('["python3", "trian.py"]', "'trian.py' is not in this folder"),
        ('["python3", "../beside.py"]', "'../beside.py' is not in this folder"),
        ('["python3", "a\\u0000b"]', "has a NUL in it"),
    ],
)
def test_a_command_is_a_list_of_words_and_starts_no_file_of_the_parcel(
    folder: Path, command: str, words: str
) -> None:
    (fault,) = faults(folder, f'name = "a"\ncommand = {command}\n')
    assert fault.startswith(":2: command: ")
    assert words in fault


@pytest.mark.parametrize("command", ['["/opt/python", "train.py"]', '["uv", "run", "train.py"]'])
def test_a_command_may_name_a_program_of_the_host(folder: Path, command: str) -> None:
    assert read(folder, f'name = "a"\ncommand = {command}\n').command[-1] == "train.py"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a b", "a name is a letter or digit, then"),
        ("../x", "a name is a letter or digit, then"),
        ("aux", "cannot be the name of a folder on Windows"),
        ("gbt", "gbt is built in; choose another name"),
    ],
)
def test_a_name_follows_the_rule_of_trainers(folder: Path, name: str, words: str) -> None:
    (fault,) = faults(folder, LEAST.replace("least", name))
    assert fault.startswith(":1: name: ")
    assert words in fault


def test_an_environment_of_uv_needs_a_lock_file(folder: Path) -> None:
    text = f'{LEAST}environment = "uv"\n'
    (folder / "requirements.txt").unlink()
    (folder / "uv.lock").touch()
    (fault,) = faults(folder, text)
    assert fault.startswith(':3: environment: "uv" needs uv.lock and pyproject.toml, or req')
    (folder / "pyproject.toml").touch()
    assert read(folder, text).environment == "uv"


def test_tables_of_a_later_version_are_unknown_keys(folder: Path) -> None:
    (fault,) = faults(folder, f"{LEAST}[limits]\ncores = 2\n")
    assert fault.startswith(":3: limits: unknown key; known are: command, data, description, ")


def test_a_key_cannot_command_a_terminal(folder: Path) -> None:
    (fault,) = faults(folder, f'{LEAST}"\\u001b[2J" = 1\n')
    assert "\x1b" not in fault


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"name = ", ":1: is not TOML: "),
        (b"\xff", ":1: is not UTF-8 text; save it as UTF-8"),
        (b"#" * 70_000, ": is larger than 64 KiB; "),
        (b"a." * 990 + b"a = 1", ": has tables hundreds deep in one another; write it flat"),
    ],
)
def test_what_is_no_usable_file_is_told(folder: Path, data: bytes, words: str) -> None:
    (folder / "program.toml").write_bytes(data)
    with pytest.raises(ConfigError) as refusal:
        read_program(folder, ())
    assert str(refusal.value).removeprefix(str(folder / "program.toml")).startswith(words)


def test_a_folder_without_the_file_is_told_so(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"program\.toml: cannot be read: No such file"):
        read_program(folder, ())


def test_a_large_schema_is_refused_as_no_message_could_bear_it(folder: Path) -> None:
    names = "\n".join(f'p{at} = {{ enum = ["{"x" * 500}"] }}' for at in range(40))
    (fault,) = faults(folder, f"{LEAST}[parameters]\n{names}\n")
    assert "bytes of JSON; at most 16384" in fault
