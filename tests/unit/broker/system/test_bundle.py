"""Deterministic bundles of files."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from broker.errors import StorageError
from broker.system.archive import unpack
from broker.system.bundle import NothingWrittenError, bundle_files, make_bundle
from tests.harness.stored import fill


def test_the_same_files_give_the_same_bundle(tmp_path: Path) -> None:
    one, two = fill(tmp_path / "one"), tmp_path / "two"
    two.mkdir()
    (two / "empty").write_bytes(b"")
    (two / "deep").mkdir()
    for name in ("deep/weights.bin", "model.json"):
        (two / name).write_bytes((one / name).read_bytes())
        os.utime(two / name, (1, 1))
        (two / name).chmod(0o600)
    first = make_bundle(one, tmp_path / "1.tar.zst")
    assert make_bundle(two, tmp_path / "2.tar.zst") == first
    assert hashlib.sha256((tmp_path / "1.tar.zst").read_bytes()).hexdigest() == first.artifact_id
    assert (tmp_path / "1.tar.zst").stat().st_size == first.size_bytes
    (two / "model.json").write_text('{"a": 2}')
    assert make_bundle(two, tmp_path / "3.tar.zst") != first


@pytest.mark.posix  # links are
def test_what_is_no_file_is_not_bundled(tmp_path: Path) -> None:
    """A link could lead anywhere; an empty folder is no result."""
    folder = fill(tmp_path / "f")
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(StorageError, match="no regular file"):
        make_bundle(folder, tmp_path / "b")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(NothingWrittenError):
        make_bundle(tmp_path / "nothing", tmp_path / "b")


LIMITED = """
import resource, sys
from pathlib import Path
from broker.system.bundle import bundle_files, make_bundle
from tests.harness.stored import fill
limit_bytes = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
try:
    print(make_bundle(Path(sys.argv[1]), Path(sys.argv[2])))
except OSError as error:
    print("OSError", error.errno)
"""


@pytest.mark.system
@pytest.mark.posix  # there are no such limits
@pytest.mark.parametrize(
    ("size_bytes", "limit_bytes"),
    [(3_000_000, 1_000_000), (3_000_000, 2_990_000), (100_000, 60_000), (100_000, 0)],
    ids=["in the middle", "at the end", "of one write", "of nothing"],
)
def test_a_bundle_that_the_disk_does_not_take_whole_is_none(
    tmp_path: Path, size_bytes: int, limit_bytes: int
) -> None:
    """What the disk said is what the caller is told, wherever in the bundle it said so."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "weights").write_bytes(random.Random(1).randbytes(size_bytes))
    bundle = tmp_path / "bundle"
    words = [sys.executable, "-c", LIMITED, tmp_path / "out", bundle, str(limit_bytes)]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert said.stdout == f"OSError {errno.EFBIG}\n", said.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "a part would fill the disk"


def test_files_of_anywhere_are_bundled_by_the_names_that_they_are_given(tmp_path: Path) -> None:
    one = fill(tmp_path / "one")
    named = {"b/model": one / "model.json", "a": one / "empty"}
    info = bundle_files(named, tmp_path / "named")
    files = unpack(tmp_path / "named", tmp_path / "got")
    assert [path.relative_to(tmp_path / "got").as_posix() for path in files] == ["a", "b/model"]
    assert files[1].read_text() == '{"a": 1}'
    other_order = dict(reversed(named.items()))
    assert bundle_files(other_order, tmp_path / "again") == info
