"""Datasets: trees of files, each named by the sha256 of its listing.

The listing has the line `sha256 size path` for each file, sorted by path (bytes of UTF-8). The
files travel in packs, which are files' bytes one after the other. The layout tells which files a
dataset has, and where in which pack the bytes of each are:

    {"version":1,"packs":[[sha256,size],...],"files":[[path,size,sha256,pack,offset],...]}

as JSON compressed by zstandard, sorted by path; `pack` is an index into `packs`, and both numbers
are 0 for an empty file. A layout comes from somebody else: `read_layout` trusts nothing in it.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from broker import file_names
from broker.errors import BadStream
from broker.protocol.messages import MAX_PACKS, ArtifactId

PREPARED: Final = "prepared"  # what a job of a built-in trainer calls its only dataset
PACK_BYTES: Final = 256 * 1024**2  # a larger file is a pack by itself
MAX_FILES: Final = 200_000
MAX_LAYOUT_BYTES: Final = 32 * 1024**2  # as it is stored and sent
MAX_DEPTH: Final = 16
MAX_PATH_BYTES: Final = 500
MAX_BYTES: Final = 1 << 50  # of all files, and of a pack
_MAX_JSON_BYTES: Final = 64 * 1024**2
_LEVEL: Final = 6
_EMPTY: Final = hashlib.sha256().hexdigest()
_Count = Annotated[int, Field(ge=0, le=MAX_BYTES)]


class Pack(NamedTuple):
    """Bytes of several files, one after the other; `digest` is their sha256."""

    digest: ArtifactId
    size_bytes: Annotated[int, Field(gt=0, le=MAX_BYTES)]


class File(NamedTuple):
    """A file of a dataset: its path with `/`, and where its bytes begin in which pack."""

    path: str
    size_bytes: _Count
    digest: ArtifactId
    pack: _Count
    offset: _Count


@dataclass(frozen=True, slots=True)
class Layout:
    """Which files a dataset has, sorted by path, and where their bytes are."""

    packs: Annotated[tuple[Pack, ...], Field(max_length=MAX_PACKS)]
    files: Annotated[tuple[File, ...], Field(max_length=MAX_FILES)]
    version: Literal[1] = 1

    @property
    def size_bytes(self) -> int:
        """Return the size of all files together."""
        return sum(one.size_bytes for one in self.files)

    def digest(self) -> str:
        """Return the dataset's name: the sha256 of its listing, in hex."""
        return hashlib.sha256(listing(self.files)).hexdigest()

    def objection(self) -> str:
        """Return why this can be no dataset, or an empty string."""
        return next(_objections(self), "")


def listing(files: Iterable[File]) -> bytes:
    """Return the listing of files that are sorted by path."""
    return "".join(f"{one.digest} {one.size_bytes} {one.path}\n" for one in files).encode()


class Paths:
    """Judges the paths of one dataset, one after the other.

    They mean the same on every system: no two are equal where case, or the form of Unicode, makes
    no difference.
    """

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}  # each path or folder as it is, by its folded form
        self._files: set[str] = set()
        self._allowed: set[str] = set()  # folders of files that were added

    def objection(self, path: str) -> str:
        """Add a file by its path with `/`; return why it is not allowed, or an empty string."""
        shown, parts = repr(path[:80]), path.split("/")
        is_new = (folder := path.rpartition("/")[0]) not in self._allowed
        for part in parts if is_new else parts[-1:]:
            if wrong := file_names.objection(part):
                return f"{part[:80]!r} {wrong}: some system cannot store it; rename it"
        if len(parts) > MAX_DEPTH or len(path.encode()) > MAX_PATH_BYTES:
            return (
                f"{shown} is too long; a path has at most {MAX_PATH_BYTES} bytes and "
                f"{MAX_DEPTH} levels"
            )
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        if folded in self._seen:
            return f"{shown} and {self._seen[folded][:80]!r} are one file on some systems"
        for above, its_folded in (
            zip(_folders(path), _folders(folded), strict=True) if is_new else ()
        ):
            other = self._seen.setdefault(its_folded, above)
            if other != above or its_folded in self._files:
                return f"{shown} and {other[:80]!r} are in each other's way on some systems"
        self._seen[folded] = path
        self._files.add(folded)
        self._allowed.add(folder)
        if len(self._files) > MAX_FILES:
            return f"{shown} is one file too many; a dataset has at most {MAX_FILES:,}"
        return ""


def _folders(path: str) -> Iterator[str]:
    return (path[:at] for at, one in enumerate(path) if one == "/")


def _objections(layout: Layout) -> Iterator[str]:
    """Yield what is wrong with a layout each of whose values may be."""
    if not layout.files:
        yield "it has no file"
    if len(layout.packs) > MAX_PACKS:
        yield f"it has {len(layout.packs):,} packs; a dataset has at most {MAX_PACKS:,}"
    paths, places, before = Paths(), dict[str, tuple[int, int, int]](), ""
    for file in layout.files:
        if objection := paths.objection(file.path) or _file_objection(file, layout.packs):
            yield objection
        if file.path <= before:
            yield f"{file.path[:80]!r} is not in its place; files are sorted by path"
        before, place = file.path, (file.size_bytes, file.pack, file.offset)
        if places.setdefault(file.digest, place) != place:
            yield f"{file.path[:80]!r} has the hash of another file, and not its place"
    if len({one.digest for one in layout.packs}) < len(layout.packs):
        yield "it has a pack twice"
    if len({pack for size_bytes, pack, _ in places.values() if size_bytes}) < len(layout.packs):
        yield "it has a pack that no file is in"
    if layout.size_bytes > MAX_BYTES:
        yield f"its files have {layout.size_bytes:,} bytes; a dataset has at most {MAX_BYTES:,}"


def _file_objection(file: File, packs: tuple[Pack, ...]) -> str:
    path, size_bytes, digest, pack, offset = file
    if (digest == _EMPTY) != (size_bytes == 0):
        return f"{path[:80]!r} has no sha256 of a file of its size"
    if not size_bytes:
        return "" if pack == offset == 0 else f"{path[:80]!r} is empty, and in a pack"
    is_within = pack < len(packs) and offset + size_bytes <= packs[pack].size_bytes
    return "" if is_within else f"{path[:80]!r} is not within its pack"


def write_layout(layout: Layout) -> bytes:
    """Return a layout as it is stored: the same bytes for the same layout and zstandard.

    Raises `BadStream` for what `read_layout` would refuse.
    """
    import zstandard  # with the first one: an agent that has nothing to do is to be small

    if objection := layout.objection():
        raise BadStream(objection)
    told = {"version": 1, "packs": layout.packs, "files": layout.files}
    text = json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
    data: bytes = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(text)
    if len(text) > _MAX_JSON_BYTES or len(data) > MAX_LAYOUT_BYTES:
        raise BadStream("the layout is too large; use shorter paths or fewer files")
    return data


@cache
def _layouts() -> TypeAdapter[Layout]:
    return TypeAdapter(Layout)  # with the first one, as zstandard


def read_layout(data: bytes) -> Layout:
    """Return a layout by its bytes.

    Raises `BadStream` for one that is damaged or holds what no dataset may hold.
    """
    try:
        layout = _layouts().validate_json(_text(data), strict=True)
    except ValidationError as error:
        raise BadStream(f"the layout is refused: {error.errors()[0]['msg']}") from None
    if objection := layout.objection():
        raise BadStream(f"the layout is refused: {objection}")
    return layout


def _text(data: bytes) -> bytes:
    import zstandard

    if len(data) > MAX_LAYOUT_BYTES:
        raise BadStream("the layout is too large")
    try:
        decompressor = zstandard.ZstdDecompressor()
        with decompressor.stream_reader(data, read_across_frames=False) as stream:
            text: bytes = stream.read(_MAX_JSON_BYTES + 1)
    except zstandard.ZstdError as error:
        raise BadStream(f"the layout is damaged: {error}") from None
    if len(text) > _MAX_JSON_BYTES:
        raise BadStream("the layout unpacks to more than is allowed")
    return text
