"""A manifest that is read again: what has not changed is not read anew, nor is it read wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.manifest_file import load_manifest, read_text
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.rereading import PlanReader

SCHEMA = {"properties": {"depth": {"type": "integer"}, "list": {}, "note": {}},
          "additionalProperties": False}  # fmt: skip
TRAINERS: dict[str, Any] = {"gbt": SCHEMA, "mlp": {}}
HEAD = "schema_version = 1\n"

# What people write, and what they should not: each a piece of a manifest.
OPENS = '[[jobs]]\nmodel = "gbt"\nmode = "oracle"\n'
PIECES = (
    f'{OPENS}name = "a"\nseed = 1\n',
    f'{OPENS}name = "b"\nseed = 2\n[jobs.hyper]\ndepth = 3\n',
    ' [[ jobs ]]  # ours\nname = "c"\nmodel = "mlp"\nmode = "oracle"\nseed = 3\n',
    f'{OPENS}name = "d"\nseed = 4\nhyper.list = [\n  [1, 2],\n  [3]\n]\n',
    f'{OPENS}name = "e"\nseed = 5\nhyper.note = """\n[[jobs]]\nname = "f"\n"""\n',
    '[["jobs"]]\nname = "g"\nmodel = "gbt"\nmode = "oracle"\nseed = 7\n',
    f'{OPENS}name = "h"\nseed = 1\n',
    f'{OPENS}name = "i"\n[jobs.hyper]\nwidth = 3\n',
    "[jobs.hyper]\ndepth = 9\n",
    "[hosts.pi]\npriority = 3\n",
    '[hosts.attic]\ndeny_jobs = [\n"a",\n]\n',
    "[defaults]\nseed = 9\n",
    "[defaults]\nprefer_cuda_grace_s = 7\n",
    "# [[jobs]]\n",
    "[nonsense\n",
    "jobs = []\n",
    'name = "plan"\n',
)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Plan]:
    """Have a reader read a text."""
    path = tmp_path / "plan.toml"

    def _read(reader: PlanReader, text: str, trainers: dict[str, Any] | None = None) -> Plan:
        path.write_text(text)
        return reader.parse(path, read_text(path), trainers or TRAINERS)

    return _read


def said(work: Callable[[], Plan]) -> Plan | str:
    """A plan, or what is wrong with it."""
    try:
        return work()
    except ManifestError as error:
        return str(error)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=7), min_size=1, max_size=4))
def test_however_a_manifest_changes_it_is_read_as_by_one_who_never_saw_it(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]]
) -> None:
    """The same plan, or the same errors with the same lines."""
    path = tmp_path_factory.getbasetemp() / "plan.toml"
    reader = PlanReader()
    for pieces in texts:
        path.write_text(HEAD + "".join(pieces))
        again = said(lambda: reader.parse(path, read_text(path), TRAINERS))
        assert again == said(lambda: load_manifest(path, TRAINERS))


def test_a_job_whose_text_has_not_changed_is_the_job_that_it_was(read: Any) -> None:
    """And one that has changed is another."""
    reader = PlanReader()
    before = read(reader, HEAD + PIECES[0] + PIECES[1])
    after = read(reader, HEAD + PIECES[0] + PIECES[1].replace("depth = 3", "depth = 4"))
    assert after.jobs[0] is before.jobs[0]
    assert after.jobs[1].hyper == {"depth": 4}


def test_new_defaults_hold_for_jobs_whose_text_is_the_same(read: Any) -> None:
    """Their seed is another, so they are other jobs."""
    reader = PlanReader()
    before = read(reader, HEAD + OPENS)
    after = read(reader, HEAD + PIECES[11] + OPENS)
    assert (before.jobs[0].seed, after.jobs[0].seed) == (0, 9)


def test_a_trainer_that_has_changed_judges_anew(read: Any) -> None:
    """A job that it does not take any more is an error, though its text is the same."""
    reader = PlanReader()
    read(reader, HEAD + PIECES[1])
    with pytest.raises(ManifestError, match="depth"):
        read(reader, HEAD + PIECES[1], {"gbt": {"properties": {"depth": {"maximum": 2}}}})
