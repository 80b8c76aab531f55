"""On which line of a TOML file each key stands."""

from __future__ import annotations

import time

import pytest

from broker.toml_lines import Lines

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
    assert Lines(TEXT.replace("\n", end)).of(path) == line


def test_inline_lists_of_tables_are_found() -> None:
    lines = Lines('jobs = [\n  {model = "mlp"},\n  {model = "cnn"},\n]\nx = 1\n')
    assert lines.of(("jobs", 1, "model")) == 1
    assert lines.of(("x",)) == 5


def test_a_huge_statement_is_given_up_in_time() -> None:
    begun_s = time.monotonic()
    lines = Lines("a = 1\nb = [\n" + "1,\n" * 100_000 + "]\nc = 2\n")
    assert (lines.of(("a",)), lines.of(("c",))) == (1, None)
    assert time.monotonic() - begun_s < 30
