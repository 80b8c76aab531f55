"""A folder is pushed to a coordinator: what is sent, sent once, and what a cut costs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from broker.errors import BadStream, ConfigError
from broker.programs import datasets
from broker.programs.datasets import read_layout
from broker.protocol import messages as m
from coordinator.client import dataset_tree
from coordinator.client.dataset_push import PushedData, push_data
from tests.harness.inclient import Streaming
from tests.harness.shell import Coordinator, ledgers_closed  # noqa: F401 - a fixture

PACK = 40_000
FILES = {name: name.encode() * 30_000 for name in "abcd"}  # two packs


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_tree, "PACK_BYTES", PACK)


class Pushing:
    """Somebody pushes a folder; each connection is lost after `most` chunks."""

    def __init__(self, tmp: Path) -> None:
        self.fleet, self.folder = Coordinator(tmp), tmp / "folder"
        self.clients: list[Streaming] = []
        self.shown: list[tuple[str, int, int]] = []  # what is shown: of what, of how much, done
        self.most = float("inf")
        self.meanwhile: Callable[[], object] = lambda: None  # before each connection
        self.write(FILES)

    def write(self, files: Mapping[str, bytes]) -> None:
        self.folder.mkdir(exist_ok=True)
        for name, data in files.items():
            (self.folder / name).write_bytes(data)

    def connect(self) -> Streaming:
        self.meanwhile()
        self.clients.append(Streaming(self.fleet, self.most))
        return self.clients[-1]

    @contextlib.contextmanager
    def transfer(self, what: str, size_bytes: int) -> Iterator[Callable[[int], None]]:
        counts: list[int] = []
        yield counts.append
        self.shown.append((what, size_bytes, sum(counts)))

    def push(self, name: str = "tree") -> PushedData:
        self.clients.clear()
        return push_data(self.connect, name, self.folder, self.transfer)  # type: ignore[arg-type] # see Streaming

    def sent(self) -> bytes:
        """The bytes that were sent, with those of the layouts."""
        return b"".join(data for client in self.clients for data in client.sent)

    def stored(self, title: str) -> dict[str, bytes]:
        """The files of a dataset, as a host puts them together from what is stored."""
        offer = self.fleet.core.world.pushed[title].offer
        data = {one: self.blob(one.artifact_id) for one in offer.blobs()}
        layout = read_layout(data[offer.blobs()[-1]])
        assert layout.digest() == offer.digest
        packs = [data[m.Blob(*pack)] for pack in layout.packs]
        return {
            one.path: packs[one.pack][one.offset : one.offset + one.size_bytes]
            for one in layout.files
        }

    def blob(self, artifact_id: str) -> bytes:
        path = self.fleet.store.path_of(artifact_id)
        return path.read_bytes() if path else b""


@pytest.fixture
def pushing(tmp_path: Path) -> Pushing:
    return Pushing(tmp_path)


def test_a_pushed_folder_is_known_and_what_is_stored_gives_its_files(pushing: Pushing) -> None:
    pushed = pushing.push()
    assert pushing.stored(pushed.title) == FILES
    assert (pushed.size_bytes, pushed.files) == (120_000, 4)
    assert pushing.shown[0] == ("tree: hashing", 120_000, 120_000)
    assert pushed.sent_bytes == 120_000, "bytes of files, as the size is"
    (what, size_bytes, done) = pushing.shown[1]
    assert (what, size_bytes == done > 120_000) == ("tree", True)


def test_what_the_fleet_has_is_not_sent_again(pushing: Pushing) -> None:
    """Neither by the same name, nor by another, where it came in other packs."""
    pushing.write({"a": b"at first"})
    pushing.push()
    pushing.write(FILES)
    first = pushing.push()
    again, other = pushing.push(), pushing.push("copy")
    assert (again.title, again.sent_bytes, other.sent_bytes) == (first.title, 0, 0)
    assert other.title == f"copy@{first.digest}"
    assert pushing.stored(other.title) == FILES


def test_a_later_version_sends_only_what_has_changed(pushing: Pushing) -> None:
    first = pushing.push()
    pushing.write({"c": b"new", "e": FILES["a"]})
    later = pushing.push()
    assert pushing.sent().startswith(b"new")
    assert later.sent_bytes < 1000
    assert pushing.stored(later.title) == FILES | {"c": b"new", "e": FILES["a"]}
    assert pushing.stored(first.title) == FILES


def test_a_push_that_was_cut_goes_on_where_it_was(pushing: Pushing) -> None:
    """Within a pack too: what had come is not sent again."""
    pushing.most, cuts, sent = 2, 0, 0
    while True:
        try:
            pushed = pushing.push()
            break
        except ConnectionError:
            cuts += 1
            assert cuts < 10
        finally:
            sent += len(pushing.sent())
    assert cuts >= 2
    assert sent < 1.1 * 120_000
    assert pushing.shown[-1][1] == pushing.shown[-1][2], "what had been sent is shown as done"
    assert pushing.stored(pushed.title) == FILES


def test_a_version_whose_earlier_packs_are_gone_is_sent_whole(pushing: Pushing) -> None:
    """They may go with a removed version, while the new one is hashed."""
    pushing.push()
    pushing.write({"c": b"new"})
    connections = 0

    def lose() -> None:
        nonlocal connections
        connections += 1
        if connections == 3:
            pushing.fleet.core.world.stored.clear()

    pushing.meanwhile = lose
    later = pushing.push()
    assert later.sent_bytes > 90_000
    assert pushing.stored(later.title) == FILES | {"c": b"new"}


@pytest.mark.words
def test_files_that_change_while_they_are_sent_are_refused_and_told(pushing: Pushing) -> None:
    def change() -> None:
        if pushing.clients:  # the files have been hashed
            pushing.write({"a": b"x" * 30_000})

    pushing.meanwhile = change
    with pytest.raises(BadStream, match="files changed while they were sent; push again"):
        pushing.push()
    pushing.meanwhile = lambda: None
    pushed = pushing.push()
    assert pushing.stored(pushed.title)["a"] == b"x" * 30_000


def test_many_versions_are_packed_anew_before_they_have_too_many_packs(
    pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in (m, datasets):
        monkeypatch.setattr(where, "MAX_PACKS", 4)
    for number in range(4):
        pushing.write({f"new-{number}": b"%d" % number})
        title = pushing.push().title
    assert pushing.stored(title) == FILES | {f"new-{n}": b"%d" % n for n in range(4)}


@pytest.mark.words
def test_a_folder_that_takes_too_many_packs_is_refused(
    pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MAX_PACKS", 1)
    with pytest.raises(ConfigError, match="dataset tree: it has 2 packs; a dataset has at most 1"):
        pushing.push()


@pytest.mark.parametrize("name", ["", "no name", "con", "x" * 65, "../x", "cifar@77"])
def test_a_name_that_no_dataset_can_have_is_refused_at_once(pushing: Pushing, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a dataset"):
        pushing.push(name)
    assert pushing.clients == []
