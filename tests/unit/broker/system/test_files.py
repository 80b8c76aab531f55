"""Files on the real disk, as programs leave them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agent.trainer.common import files as trainer_files
from broker.system import files
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


def _delete(_old: Path, new: Path) -> None:
    RealDisk().unlink(new)


BUSY: list[tuple[ModuleType, Callable[[Path, Path], None], str]] = [
    (files, RealDisk().replace, "replace"),
    (files, _delete, "unlink"),
    (trainer_files, trainer_files.move, "replace"),
]


@pytest.mark.parametrize(("module", "act", "call"), BUSY)
@pytest.mark.parametrize("times", [2, 9])
def test_a_file_that_is_busy_for_a_moment_is_waited_for(
    module: ModuleType, act: Callable[[Path, Path], None], call: str, times: int,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """On Windows, while an indexer has it open; a right that is missing is told in the end."""
    old, new, really = tmp_path / "old", tmp_path / "new", getattr(Path, call)
    refusals = iter([PermissionError(13, "Sharing violation")] * times)

    def busy(path: Path, *arguments: object, **options: object) -> object:
        if (refusal := next(refusals, None)) is not None:
            raise refusal
        return really(path, *arguments, **options)

    old.write_text("new", "utf-8")
    new.write_text("old", "utf-8")
    monkeypatch.setattr(module, "_WAITS_S", (0.0, 0.0))
    monkeypatch.setattr(Path, call, busy)
    if times > 2:
        with pytest.raises(PermissionError):
            act(old, new)
        assert new.read_text("utf-8") == "old"
        return
    act(old, new)
    assert not (old if call == "replace" else new).exists()


def test_a_folder_with_a_file_that_is_busy_for_a_moment_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "busy").touch()
    (tmp_path / "tree" / "other").touch()
    really, refusals = os.unlink, iter([PermissionError(13, "Sharing violation")] * 2)

    def busy(path: Path, **options: Any) -> None:
        if "busy" in str(path) and (refusal := next(refusals, None)) is not None:
            raise refusal
        really(path, **options)

    monkeypatch.setattr(files, "_WAITS_S", (0.0, 0.0))
    monkeypatch.setattr(os, "unlink", busy)
    RealDisk().remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


@pytest.mark.skipif(os.name != "nt", reason="elsewhere an open file hinders nobody")
@pytest.mark.parametrize("act", [RealDisk().replace, _delete, trainer_files.move])
def test_an_open_file_is_replaced_once_it_is_closed(
    act: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("new", "utf-8")
    new.write_text("old", "utf-8")
    opened = threading.Event()

    def read() -> None:
        with new.open("rb"):
            opened.set()
            time.sleep(0.2)

    reader = threading.Thread(target=read)
    reader.start()
    opened.wait()
    act(old, new)
    reader.join()
