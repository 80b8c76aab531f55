"""Datasets on a host's disk: what is used is whole and what it was meant to be, come what may."""

from __future__ import annotations

import errno
import itertools
import os
import time
from functools import partial
from pathlib import Path

import pytest

from agent.programs.cached_folders import KEPT_S
from agent.programs.host_data import LEFT_S, HostData
from broker.clock import Now
from broker.errors import BadStream
from broker.programs.datasets import Layout, Pack, write_layout
from broker.programs.unusable import Unusable
from tests.harness.agent import HEX, JOB
from tests.harness.datasets import Made, sha256
from tests.harness.disks import NEVER, Dying, FaultyDisk, SlowDisk

FILES = {"a/1.png": b"one", "a/2.png": b"two!", "b/3.png": b"three", "b/same": b"one", "none": b""}
MANY = {f"{n:03}": b"%03d" % n for n in range(150)}
MADE = Made(FILES)


class Clock:
    def __init__(self) -> None:
        self.wall_s = time.time()

    def __call__(self) -> Now:
        return Now(self.wall_s, self.wall_s)


class Host:
    """The datasets of a host, and the coordinator that has them."""

    def __init__(self, root: Path, limit_bytes: float = 1e9) -> None:
        self.root, self.limit_bytes = root, limit_bytes
        self.disk, self.clock = FaultyDisk(), Clock()
        self.fetched: list[str] = []
        self.start()

    def start(self) -> None:
        self.data = HostData(self.root, self.limit_bytes, self.clock, self.disk)

    def gets(self, made: Made, in_use: tuple[str, ...] = (), attempt: int = 1) -> dict[str, bytes]:
        """An attempt fetches all that is missing; return what it finds there."""
        while (lacks := self.data.missing([made.dataset], in_use)) is not None:
            self.fetched.append(lacks.digest)
            assert len(self.fetched) < 100, "the same is fetched again and again"
            self.comes(made, lacks, attempt)
        assert not (self.root / "coming" / made.dataset.digest).exists()
        return self.tree(made)

    def comes(self, made: Made, lacks: Pack, attempt: int = 1) -> None:
        """What is missing comes in two pieces."""
        data = made.blobs[lacks.digest]
        assert lacks.size_bytes == len(data)
        for at in (1, 0):
            piece = data[at * (len(data) // 2) :][: len(data) // 2 + at]
            self.data.fetched.write(JOB, attempt, at * (len(data) // 2), piece)
        self.data.install(JOB, attempt, [made.dataset], lacks.digest)

    def tree(self, made: Made) -> dict[str, bytes]:
        """What a trainer finds in the dataset's folder."""
        folder = self.data.folder(made.dataset.digest)
        return {} if folder is None else contents(folder)

    def left(self) -> list[str]:
        """What lies there, but for the datasets, those that are coming, and marks."""
        names = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*"))
        shown = [name for name in names if not name.startswith("coming/")]
        return sorted(
            name for name in shown if "making" in name or name.endswith((".fetching", ".gone"))
        )

    def pool(self) -> list[bytes]:
        """The contents of all files of datasets, each once whatever its names."""
        found = (path for path in self.root.glob("whole/*/files/**/*") if path.is_file())
        return sorted(
            path.read_bytes() for path in {one.stat().st_ino: one for one in found}.values()
        )


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "data")


def test_a_dataset_is_fetched_and_used(host: Host) -> None:
    assert host.gets(MADE) == FILES
    assert host.fetched == [MADE.dataset.layout, *(pack.digest for pack in MADE.packs)]
    assert host.data.held() == (MADE.dataset.digest,)
    host.start()
    assert host.gets(MADE) == FILES
    assert len(host.fetched) == 3
    assert host.data.held() == (MADE.dataset.digest,)


@pytest.mark.posix  # modes are
def test_nobody_writes_what_lies_there(host: Host) -> None:
    host.gets(MADE)
    folder = host.data.folder(MADE.dataset.digest)
    assert folder is not None
    assert {one.stat().st_mode & 0o777 for one in folder.rglob("*") if one.is_file()} == {0o444}


def test_a_second_version_costs_its_changes_only(host: Host) -> None:
    host.gets(MADE)
    second = Made(FILES | {"b/4.png": b"four4"}, per_pack=1)
    assert host.gets(second) == FILES | {"b/4.png": b"four4"}
    assert host.fetched[3:] == [second.dataset.layout, sha256(b"four4")]
    assert host.tree(MADE) == FILES
    assert host.pool() == [b"", b"", b"four4", b"one", b"three", b"two!"]


def test_two_attempts_fetch_the_same_dataset_at_the_same_time(host: Host) -> None:
    while (lacks := host.data.missing([MADE.dataset], ())) is not None:
        for attempt in (1, 2):
            host.comes(MADE, lacks, attempt)
    assert host.tree(MADE) == FILES


def test_the_next_pack_comes_while_one_is_unpacked(host: Host) -> None:
    made = Made({f"{n}": b"%d " % n * 90 for n in range(300)}, per_pack=100)
    come: list[str] = []

    def comes(lacks: Pack | None) -> None:
        assert lacks is not None
        come.append(lacks.digest)
        host.data.fetched.write(JOB, 1, 0, made.blobs[lacks.digest])

    comes(host.data.missing([made.dataset], ()))
    host.data.install(JOB, 1, [made.dataset], made.dataset.layout)
    comes(host.data.missing([made.dataset], ()))
    for pack in made.packs:  # the next one has come when this one is there
        host.data.install(JOB, 1, [made.dataset], pack.digest, comes)
    assert come == [*made.blobs]
    assert host.data.missing([made.dataset], ()) is None
    assert host.tree(made) == made.files
    assert not host.left()


def test_a_dataset_may_be_whole_before_an_earlier_pack_is_on_the_disk(tmp_path: Path) -> None:
    host, disk, made = Host(tmp_path), SlowDisk(), Made({"1": b"1", "2": b"2"}, per_pack=1)
    host.disk = disk
    host.start()
    for meanwhile in (None, partial(host.gets, made, attempt=2)):
        disk.meanwhile, lacks = meanwhile, host.data.missing([made.dataset], ())
        assert lacks is not None
        host.comes(made, lacks)
    assert (disk.meanwhile, host.tree(made)) == (None, made.files)


def test_one_dataset_under_two_names_is_fetched_once(host: Host) -> None:
    twice = [MADE.dataset, MADE.dataset.model_copy(update={"name": "test"})]
    while (lacks := host.data.missing(twice, ())) is not None:
        host.data.fetched.write(JOB, 1, 0, MADE.blobs[lacks.digest])
        host.data.install(JOB, 1, twice, lacks.digest)
        host.fetched.append(lacks.digest)
    assert len(host.fetched) == 3
    assert host.tree(MADE) == FILES


@pytest.mark.parametrize("number", range(3))
def test_a_blob_that_was_changed_on_its_way_is_refused(host: Host, number: int) -> None:
    digest = [*MADE.blobs][number]
    changed = Made(FILES)
    changed.blobs[digest] = bytes([changed.blobs[digest][0] ^ 1]) + changed.blobs[digest][1:]
    with pytest.raises(BadStream, match="hash"):
        host.gets(changed)
    assert not host.tree(MADE)
    assert not host.left()
    assert host.gets(MADE) == FILES


def wrong(made: Made, layout: Layout) -> Made:
    """The dataset with another layout, whose hash is what the coordinator says."""
    data = write_layout(layout)
    made.blobs[sha256(data)] = data
    made.dataset = made.dataset.model_copy(
        update={"layout": sha256(data), "layout_bytes": len(data)}
    )
    return made


@pytest.mark.parametrize(("files", "number"), [(FILES, 0), (MANY, 1), (MANY, 149)])
def test_a_pack_that_does_not_have_what_its_layout_says_is_not_used(
    host: Host, files: dict[str, bytes], number: int
) -> None:
    lie = Made(files, per_pack=150)
    lied = lie.layout.files[number].digest
    listed = (one._replace(offset=1) if one.digest == lied else one for one in lie.layout.files)
    wrong(lie, Layout(lie.packs, tuple(listed)))
    with pytest.raises(BadStream, match="not in its pack"):
        host.gets(lie)
    assert not host.tree(lie)
    assert not host.left()


def test_a_layout_of_another_dataset_is_not_used(host: Host) -> None:
    with pytest.raises(BadStream, match="another dataset"):
        host.gets(wrong(Made(FILES), Made({"a": b"one"}).layout))
    assert not host.data.held()


def test_a_layout_that_lies_about_a_size_is_not_used(host: Host) -> None:
    """Of a file that is a pack by itself, and that lies here already."""
    host.gets(Made({"a": b"one"}))
    lie = Made({"b": b"one"}, per_pack=1)
    short = tuple(one._replace(size_bytes=2) for one in lie.layout.files)
    layout = Layout(lie.packs, short)
    wrong(lie, layout)
    lie.dataset = lie.dataset.model_copy(update={"digest": layout.digest()})
    with pytest.raises(BadStream, match="not in its pack"):
        host.gets(lie)


def test_a_layout_that_its_disk_has_changed_is_fetched_again(host: Host) -> None:
    lacks = host.data.missing([MADE.dataset], ())
    assert lacks is not None
    host.comes(MADE, lacks)
    path = host.root / "coming" / MADE.dataset.digest / lacks.digest
    path.chmod(0o644)
    path.write_bytes(b"rotten")
    with pytest.raises(BadStream):
        host.gets(MADE)
    assert host.gets(MADE) == FILES


def test_an_agent_that_is_killed_leaves_nothing_half_used_and_goes_on(tmp_path: Path) -> None:
    """At each change of its disk in turn, until none is left."""
    for at in itertools.count(1):
        host = Host(tmp_path / str(at))
        host.disk.at = at
        try:
            host.gets(MADE)
        except Dying:
            host.disk.at = NEVER
            host.start()
        else:
            break
        assert host.tree(MADE) in ({}, FILES)
        assert not host.left()
        assert host.gets(MADE) == FILES
        assert not host.left()
    assert at > 30


def test_what_a_power_cut_has_left_damaged_is_fetched_again(host: Host) -> None:
    for _ in range(2):
        lacks = host.data.missing([MADE.dataset], ())
        assert lacks is not None
        host.comes(MADE, lacks)
    path = host.root / "coming" / MADE.dataset.digest / "files" / MADE.layout.files[0].path
    path.chmod(0o644)
    path.write_bytes(bytes(path.stat().st_size))
    host.start()
    assert host.gets(MADE) == FILES
    assert host.fetched == [MADE.packs[0].digest, MADE.packs[1].digest]


def test_a_full_disk_leaves_nothing_half_used_and_goes_on_later(tmp_path: Path) -> None:
    for at in itertools.count(1):
        host = Host(tmp_path / str(at))
        host.disk.at, host.disk.error = at, OSError(errno.ENOSPC, "No space left on device")
        try:
            host.gets(MADE)
        except OSError:
            host.data.fetched.give_up(JOB, 1)
        else:
            break
        host.disk.at = NEVER
        assert host.tree(MADE) in ({}, FILES)
        assert host.gets(MADE) == FILES
        assert not host.left()
    assert at > 30


def test_nothing_is_fetched_that_the_disk_has_no_room_for(host: Host) -> None:
    host.disk.free = 7  # the first pack has 7 bytes, and its files once more
    with pytest.raises(Unusable, match="no-room, needed_bytes 14, free_bytes 7"):
        host.gets(MADE)
    assert host.fetched == [MADE.dataset.layout]
    host.disk.free = 14
    assert host.gets(MADE) == FILES


def test_a_file_of_its_own_needs_room_once(host: Host) -> None:
    host.disk.free = 5
    assert host.gets(Made({"a": b"12345"}, per_pack=1)) == {"a": b"12345"}


def versions(count: int) -> list[Made]:
    """Datasets of 1,000 bytes each, and 100 that all of them have."""
    return [Made({"own": bytes([n]) * 1000, "shared": b"s" * 100}) for n in range(count)]


def used(root: Path, made: list[Made], limit_bytes: float) -> Host:
    """A host where they were used one after the other, a day apart, and long ago."""
    host = Host(root)
    for number, one in enumerate(made):
        host.gets(one)
        at_s = host.clock.wall_s - 100 * 86_400 + number * 86_400
        os.utime(root / "whole" / f"{one.dataset.digest}.used", (at_s, at_s))
    host.limit_bytes = limit_bytes
    host.start()
    return host


def test_a_full_cache_drops_what_was_used_least_lately_and_nothing_in_use(tmp_path: Path) -> None:
    made = versions(4)
    host = used(tmp_path, made, 2_500)
    host.data.collect((made[0].dataset.digest,))
    assert [bool(host.tree(one)) for one in made] == [True, False, False, True]
    assert sum(map(len, host.pool())) == 2_100
    assert host.data.held() == tuple(sorted((made[0].dataset.digest, made[3].dataset.digest)))
    assert host.gets(made[1]) == {"own": bytes([1]) * 1000, "shared": b"s" * 100}


def test_a_new_dataset_finds_room_and_what_others_use_stays(tmp_path: Path) -> None:
    *made, new = versions(3)
    host = used(tmp_path, made, 2_500)
    assert host.gets(new, in_use=(made[0].dataset.digest,))
    assert [bool(host.tree(one)) for one in made] == [True, False]


def test_a_disk_without_room_is_made_some_though_the_cache_is_not_full(tmp_path: Path) -> None:
    *made, new = versions(3)
    host = used(tmp_path, made, 1e9)
    host.disk.free = 0
    with pytest.raises(Unusable, match="no-room"):
        host.gets(new, in_use=(made[1].dataset.digest,))
    assert [bool(host.tree(one)) for one in made] == [False, True]


def test_what_was_looked_at_lately_stays(tmp_path: Path) -> None:
    made = versions(2)
    host = used(tmp_path, made, 100)
    lately_s = host.clock.wall_s - KEPT_S / 2
    os.utime(host.root / "whole" / f"{made[0].dataset.digest}.used", (lately_s, lately_s))
    host.data.collect(())
    assert [bool(host.tree(one)) for one in made] == [True, False]


def age(host: Host) -> None:
    """What came of datasets came a day ago."""
    for path in host.root.glob("coming/*/listing"):
        os.utime(path, (host.clock.wall_s - LEFT_S - 1,) * 2)


def test_files_of_a_dataset_that_did_not_come_whole_are_dropped_in_the_end(host: Host) -> None:
    for _ in range(2):
        lacks = host.data.missing([MADE.dataset], ())
        assert lacks is not None
        host.comes(MADE, lacks)
    host.clock.wall_s += 2 * KEPT_S
    host.data.collect(())
    host.start()
    last = host.data.missing([MADE.dataset], ())
    assert last is not None
    assert last.digest == MADE.packs[1].digest, "what came is not fetched again"
    age(host)
    host.data.collect((MADE.dataset.digest,))
    assert host.gets(MADE) == FILES, "an attempt is at it"
    assert host.fetched[-1:] == [last.digest]


def test_files_that_no_dataset_has_any_more_are_dropped(host: Host) -> None:
    lacks = host.data.missing([MADE.dataset], ())
    assert lacks is not None
    host.comes(MADE, lacks)
    lacks = host.data.missing([MADE.dataset], ())
    assert lacks is not None
    host.comes(MADE, lacks)
    age(host)
    host.start()
    host.data.collect((HEX,))
    assert not [path for path in host.root.rglob("*") if path.is_file()]


def test_a_file_may_have_more_names_than_its_disk_allows(tmp_path: Path) -> None:
    class FewLinks(FaultyDisk):
        def link(self, file: Path, new: Path) -> None:
            if file.stat().st_nlink == 2:
                raise OSError(errno.EMLINK, "Too many links")
            super().link(file, new)

    host, files = Host(tmp_path / "data"), {f"{n}": b"the same" for n in range(4)}
    host.disk = FewLinks()
    host.start()
    assert host.gets(Made(files)) == files
