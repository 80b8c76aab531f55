"""The simulated disk does what a real one does, and forgets what a power cut may take."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.system.files import Disk, RealDisk, read, write_atomically
from tests.harness.disks import FullDisk
from tests.simulation.disk import SimDisk

NAMES = st.sampled_from(["a", "b", "c.json", "d.part"])
FOLDERS = st.sampled_from(["x", "y"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), FOLDERS, NAMES, st.binary(max_size=8)),
        st.tuples(st.just("append"), FOLDERS, NAMES, st.binary(max_size=8)),
        st.tuples(st.just("patch"), FOLDERS, NAMES, st.binary(min_size=1, max_size=4)),
        st.tuples(st.just("replace"), FOLDERS, NAMES, NAMES),
        st.tuples(st.just("move"), FOLDERS, st.just(""), st.just("z")),
        st.tuples(st.just("unlink"), FOLDERS, NAMES, st.none()),
        st.tuples(st.just("remove"), FOLDERS, NAMES, st.none()),
        st.tuples(st.just("atomic"), FOLDERS, NAMES, st.binary(max_size=8)),
    ),
    max_size=20,
)


def simulated() -> SimDisk:
    """An empty disk."""
    return SimDisk(random.Random(1), lambda: 0.0, lambda _: None)


def _do(disk: Disk, root: Path, step: tuple[str, str, str, object]) -> str:
    verb, folder, name, what = step
    path = root / folder / name
    disk.make_folder(root / folder)
    try:
        if verb == "replace":
            disk.replace(path, root / folder / str(what))
        elif verb == "move":
            disk.replace(root / folder, root / str(what))
        elif verb == "unlink":
            disk.unlink(path)
        elif verb == "remove":
            disk.remove_tree(root / folder)
        elif verb == "atomic":
            write_atomically(disk, path, what)  # type: ignore[arg-type]
        else:
            mode = {"write": "wb", "append": "ab", "patch": "r+b"}[verb]
            with disk.open(path, mode) as file:
                if verb == "patch":
                    file.seek(2)
                file.write(what)
    except OSError as error:
        return type(error).__name__
    return ""


def _seen(disk: Disk, root: Path) -> list[tuple[str, bytes, int | None]]:
    return [
        (str(path.relative_to(root)), read(disk, path), disk.size_bytes(path))
        for path in disk.glob(root, "*/*")
    ]


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_it_does_what_a_real_disk_does(steps: list[tuple[str, str, str, object]]) -> None:
    """The same errors, names and bytes after the same steps."""
    with tempfile.TemporaryDirectory() as name:
        real, ours = RealDisk(), simulated()
        ours.make_folder(Path("/sim"))
        for step in steps:
            assert _do(real, Path(name), step) == _do(ours, Path("/sim"), step)
        assert _seen(real, Path(name)) == _seen(ours, Path("/sim"))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1000), st.binary(min_size=1, max_size=50))
def test_what_was_synced_survives_a_power_cut(seed: int, data: bytes) -> None:
    """Bytes by `sync`, names by `sync_folder`; what was not may be gone."""
    disk = SimDisk(random.Random(seed), lambda: 0.0, lambda _: None)
    folder = Path("/s")
    disk.make_folder(folder)
    write_atomically(disk, folder / "kept", data)
    disk.sync_folder(folder)
    with disk.open(folder / "lost", "wb") as file:
        file.write(data)
    disk.power_cut()
    assert read(disk, folder / "kept") == data


def test_what_was_not_synced_may_be_lost() -> None:
    """Each of: the name, the bytes, a rename."""
    outcomes = set()
    for seed in range(60):
        disk = SimDisk(random.Random(seed), lambda: 0.0, lambda _: None)
        disk.make_folder(Path("/s"))
        disk.sync_folder(Path("/s"))
        disk.sync_folder(Path("/"))
        write_atomically(disk, Path("/s/f"), b"old")
        disk.sync_folder(Path("/s"))
        with disk.open(Path("/s/new"), "wb") as file:
            file.write(b"data")
        disk.replace(Path("/s/new"), Path("/s/f"))
        disk.power_cut()
        size = disk.size_bytes(Path("/s/f"))
        outcomes.add(None if size is None else bytes(disk.bytes_of(Path("/s/f")) or b""))
    assert b"old" in outcomes
    assert b"data" in outcomes
    assert b"" in outcomes, "a rename may come to the disk before the bytes"


@pytest.mark.parametrize("kind", [RealDisk, SimDisk])
def test_a_file_may_have_several_names(kind: type[Disk], tmp_path: Path) -> None:
    disk = RealDisk() if kind is RealDisk else simulated()
    disk.make_folder(tmp_path / "x")
    one, two = (tmp_path / "x" / name for name in "ab")
    write_atomically(disk, one, b"data")
    disk.link(one, two)
    assert (disk.tree_bytes(one.parent), read(disk, two)) == (4, b"data")
    with pytest.raises(FileExistsError):
        disk.link(one, two)
    with pytest.raises(FileNotFoundError):
        disk.link(tmp_path / "none", two)
    disk.replace(one, two)
    assert disk.size_bytes(one) == 4, "a rename of one name of a file to another does nothing"
    disk.unlink(one)
    assert (disk.size_bytes(one), read(disk, two)) == (None, b"data")


def test_a_folder_that_has_its_name_after_a_power_cut_is_whole() -> None:
    outcomes = set()
    for seed in range(40):
        disk = SimDisk(random.Random(seed), lambda: 0.0, lambda _: None)
        disk.make_folder(Path("/s/making"))
        write_atomically(disk, Path("/s/file"), b"data")
        for name in "ab":
            disk.link(Path("/s/file"), Path("/s/making") / name)
        disk.replace(Path("/s/making"), Path("/s/tree"))
        disk.power_cut()
        outcomes.add(tuple(read(disk, path) for path in disk.glob(Path("/s/tree"), "*")))
    assert outcomes == {(), (b"data", b"data")}


def test_a_full_disk_keeps_the_file_and_gets_its_room_back(tmp_path: Path) -> None:
    """What could not be written in whole is taken away again."""
    disk = FullDisk()
    write_atomically(disk, tmp_path / "plan", b"old")
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        write_atomically(disk, tmp_path / "plan", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"plan": b"old"}
