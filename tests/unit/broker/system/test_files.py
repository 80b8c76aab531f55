"""Files on the real disk, as programs leave them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from broker.system.files import RealDisk


@pytest.mark.skipif(os.name == "nt", reason="its paths have a limit")
def test_folders_in_folders_without_end_are_deleted(tmp_path: Path) -> None:
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    kept.mkdir()
    tree.mkdir()
    (tree / "link").symlink_to(kept)
    at = os.open(tree, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("folder", dir_fd=at)
        inner = os.open("folder", os.O_RDONLY, dir_fd=at)
        os.close(os.open("file", os.O_CREAT, dir_fd=inner))
        os.close(at)
        at = inner
    os.close(at)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)  # as 1000 levels would meet the usual one; they take long to make
    try:
        RealDisk().remove_tree(tree)
    finally:
        sys.setrecursionlimit(limit)
    assert [*tmp_path.iterdir()] == [kept]
