"""Reads the files of a model out of a bundle (tar, zstandard) or a folder; trusts nothing in it.

Only the named files are read, into memory, and how much a bundle may unpack to is bounded.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import IO, Final

import zstandard

from agent.trainer.common.errors import BadInputError, plain

WANTED: Final = frozenset({"model.json", "model.ubj", "model.safetensors"})
MAX_BYTES: Final = 8 * 1024**3  # of everything in the bundle, unpacked
MAX_FILE_BYTES: Final = 1024**3  # of one of them, which is read into memory
MAX_ENTRIES: Final = 10_000
_BLOCK_BYTES: Final = 1024 * 1024
_MAX_WINDOW_BYTES: Final = 128 * 1024 * 1024
_REMEDY: Final = "fetch it anew (`fleet get JOB`)"


class _Bounded:
    """A stream that refuses to give more than it may."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream = stream
        self._path = path
        self._left_bytes = MAX_BYTES

    def read(self, size_bytes: int = -1) -> bytes:
        size_bytes = _BLOCK_BYTES if size_bytes < 0 else min(size_bytes, _BLOCK_BYTES)
        data = self._stream.read(size_bytes)
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            what = f"unpacks to more than {MAX_BYTES // 1024**3} GiB"
            raise BadInputError.at(self._path, "content", what, "this is no model")
        return data


def read_model_files(bundle: Path) -> dict[str, bytes]:
    """Return the model's files by name. Raises BadInputError for a bundle or folder without one."""
    try:
        found = _of_folder(bundle) if bundle.is_dir() else _of_archive(bundle)
    except OSError as error:
        raise BadInputError.at(bundle, "file", plain(error), "check the path") from error
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise BadInputError.at(bundle, "file", f"is no whole bundle: {error}", _REMEDY) from error
    if "model.json" not in found:
        inside = sorted(bundle.glob("*/model.json")) if bundle.is_dir() else []
        remedy = "give the whole result of one job of a built-in trainer"
        if inside:
            remedy = f"did you mean {inside[0].parent}?"
        raise BadInputError.at(bundle, "model.json", "is missing", remedy)
    return found


def _of_folder(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in WANTED if (folder / name).is_file()}


def _of_archive(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with path.open("rb") as file:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        stream = _Bounded(decompressor.stream_reader(file, read_across_frames=False), path)
        with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload] # it only reads
            for number, entry in enumerate(tar):
                if number >= MAX_ENTRIES:
                    raise BadInputError.at(path, "content", "has too many files", _REMEDY)
                if entry.size > MAX_FILE_BYTES and entry.name in WANTED:
                    what = f"is of {entry.size} bytes; a model's is smaller"
                    raise BadInputError.at(path, entry.name, what, _REMEDY)
                plain = entry.isreg() and not entry.issparse()
                if entry.name in WANTED and plain and entry.name not in found:
                    source = tar.extractfile(entry)
                    found[entry.name] = source.read() if source is not None else b""
    return found
