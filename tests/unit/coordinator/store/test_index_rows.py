"""The index of the store: one row for each result, whatever crashes have left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator.store.store import Store
from tests.harness.stored import path_in, put

DAY_S = 86_400.0


def _row(artifact_id: str, attempt: int) -> dict[str, Any]:
    return {"job_id": "1b" * 32, "attempt": attempt, "artifact_id": artifact_id}


def _rows(root: Path) -> list[tuple[str, int]]:
    lines = (root / "models" / "index.jsonl").read_text("utf-8").splitlines()
    return [(row["artifact_id"], row["attempt"]) for row in map(json.loads, lines)]


@pytest.mark.parametrize("torn", [b'{"job_id": "to', bytes(20) + b'{"job_id": "1", "att', b""])
def test_the_index_has_each_row_once_and_no_torn_one(tmp_path: Path, torn: bytes) -> None:
    """It is not flushed row by row: the last rows may be half there, or zeros, and come again."""
    Store(tmp_path).index.append(_row("a", 1))
    with (tmp_path / "models" / "index.jsonl").open("ab") as file:
        file.write(torn)
    store = Store(tmp_path)
    for attempt in (1, 2, 3):
        store.index.append(_row("a", attempt))
    assert _rows(tmp_path) == [("a", 1), ("a", 2), ("a", 3)]


def test_the_index_follows(tmp_path: Path) -> None:
    """One row for each job and artifact that is there: the newest; a later row is appended."""
    store = Store(tmp_path)
    old, result = put(store, b"old"), put(store, b"result")
    for row in (_row(old, 1), _row(result, 2), _row(result, 3)):
        store.index.append(row)
    os.utime(path_in(store, old), (0, 0))
    store.collect_artifacts([old], frozenset(), DAY_S, 1e9)
    assert _rows(tmp_path) == [(result, 3)]
    store.index.append(_row(result, 3))
    store.index.append(_row(result, 4))
    assert _rows(tmp_path) == [(result, 3), (result, 4)]


TORN = """
import resource, sys
from pathlib import Path
from broker.errors import StorageError
from coordinator.store.store import Store
store, (soft, hard) = Store(Path(sys.argv[1])), resource.getrlimit(resource.RLIMIT_FSIZE)
for attempt, limit_bytes in ((1, soft), (2, 300), (3, soft)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        store.index.append({"job_id": "j" * 100, "attempt": attempt, "artifact_id": "a" * 100})
    except StorageError:
        print("refused", attempt)
"""


@pytest.mark.system
@pytest.mark.skipif(os.name != "posix", reason="there are no such limits")
def test_a_row_that_the_disk_does_not_take_whole_spoils_no_other(tmp_path: Path) -> None:
    """Once there is room again the next one has a line of its own."""
    words = [sys.executable, "-c", TORN, tmp_path]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert said.stdout == "refused 2\n", said.stderr
    lines = (tmp_path / "models" / "index.jsonl").read_text().splitlines()
    assert [json.loads(line)["attempt"] for line in lines] == [1, 3]
