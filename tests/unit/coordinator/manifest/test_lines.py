"""On which line of a TOML file each key stands."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.lines import Lines
from coordinator.manifest.manifest_file import load_manifest
from coordinator.manifest.problems import ManifestError

TEXT = '''\
schema_version = 1  # comment
note = """
[[jobs]]
model = "not one"
"""
[defaults]
seed = 3

[hosts."my.host"]
slots = 2
[[jobs]]
model = "mlp"
train_hosts = [
  "a",
  "b",
]
hyper = {lr = 1, "odd key" = 2}
[[jobs]]
  model = 'cnn'
  hyper.epochs = 3
  [jobs.hyper.more]
  lr = 4
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("schema_version",), 1),
        (("defaults", "seed"), 7),
        (("hosts", "my.host", "slots"), 10),
        (("jobs", 0), 11),
        (("jobs", 0, "model"), 12),
        (("jobs", 0, "train_hosts", 1), 13),
        (("jobs", 0, "hyper", "odd key"), 17),
        (("jobs", 1, "model"), 19),
        (("jobs", 1, "hyper", "epochs"), 20),
        (("jobs", 1, "hyper", "more", "lr"), 22),
        (("jobs", 1, "mode"), 18),  # it is missing: the table is shown
        (("jobs", 7), None),
        ((), None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_key_has_its_line(path: tuple[str | int, ...], line: int | None, end: str) -> None:
    """Whatever TOML can write, with the line ends of either world."""
    assert Lines(TEXT.replace("\n", end)).of(path) == line


def test_inline_lists_of_tables_are_found() -> None:
    """At the line on which the list begins."""
    lines = Lines('jobs = [\n  {model = "mlp"},\n  {model = "cnn"},\n]\nx = 1\n')
    assert lines.of(("jobs", 1, "model")) == 1
    assert lines.of(("x",)) == 5


def test_a_huge_statement_is_given_up_in_time() -> None:
    """Its keys, and what comes after, have no line then: none rather than a wrong one."""
    begun_s = time.monotonic()
    lines = Lines("a = 1\nb = [\n" + "1,\n" * 100_000 + "]\nc = 2\n")
    assert (lines.of(("a",)), lines.of(("c",))) == (1, None)
    assert time.monotonic() - begun_s < 30


def test_errors_of_a_manifest_are_in_the_order_of_their_lines(tmp_path: Path) -> None:
    """Whatever is looked at first."""
    path = tmp_path / "plan.toml"
    path.write_text(
        "schema_version = 1\n[[jobs]]\nmodel = 'mlp'\nmode = 'oracle'\nhyper.epoch = 3\n"
        "allowed_hosts = ['A B']\npriority = 'x'\nseed = 'x'\nmin_cores = 0\n"
        "[hosts.pi]\nslot = 1\n",
        "utf-8",
    )
    with pytest.raises(ManifestError) as refusal:
        load_manifest(path, builtin_trainers())
    lines = [one.line for one in refusal.value.problems]
    assert lines == [5, 6, 7, 8, 9, 11]


def test_errors_of_a_manifest_name_the_line(tmp_path: Path) -> None:
    """As editors know it: FILE:LINE."""
    path = tmp_path / "plan.toml"
    path.write_text(
        "schema_version = 1\n[hosts.pi]\nslot = 1\n[[jobs]]\nmodel = 'mlp'\nmode = 'oracle'\n"
        "hyper.epoch = 3\n[[jobs]]\nmode = 'oracle'\n[[jobs]]\nmodel = 'cnn'\nmode = 'oracel'\n",
        "utf-8",
    )
    with pytest.raises(ManifestError) as refusal:
        load_manifest(path, builtin_trainers())
    said = str(refusal.value).splitlines()
    assert [line.removeprefix(str(path)).partition(": ")[0] for line in said] == [
        ":3", ":7", ":8", ":12"
    ]  # fmt: skip
    assert said[2].endswith(":8: job 2: model: missing; write model = ...")


@pytest.mark.parametrize("typed", ["[[job]]\nmodel = 'mlp'", "[job.one]", "job.one = 1", "job = 1"])
def test_an_unknown_key_of_the_top_is_found_however_it_was_written(
    tmp_path: Path, typed: str
) -> None:
    """A list of tables, a table, or a value."""
    path = tmp_path / "plan.toml"
    path.write_text(f"schema_version = 1\n\n{typed}\n", "utf-8")
    with pytest.raises(ManifestError) as refusal:
        load_manifest(path, builtin_trainers())
    assert str(refusal.value) == f"{path}:3: job: unknown key; did you mean 'jobs'?"
