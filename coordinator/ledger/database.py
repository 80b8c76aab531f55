"""SQLite files: opened, checked, migrated, copied; the statements of queries.sql by their names.

The schema is schema.sql, version 1 (`PRAGMA user_version`). A file 0002_NAME.sql, 0003_NAME.sql ...
beside it leads from the version before to a later one. Each runs in one transaction with the number
that says so.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import sqlite3
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from broker.errors import StorageError
from broker.system.files import RealDisk

Database = sqlite3.Connection


IN_MEMORY: Final = ":memory:"
RESTORE: Final = (
    "restore a backup: move it away with the -wal and -shm beside it, put the file that "
    "`fleet backup` made in its place, and start again"
)
_WAIT_S: Final = 5.0
_OF_WAL: Final = b"\2\2"  # what the header of a file in WAL mode says from byte 18
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_SHUT: Final = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS}
_IN_USE: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION: Final = re.compile(r"\d{4}_\w+\.sql$")


@functools.cache
def scripts() -> tuple[str, ...]:
    """Return the scripts that make the newest schema: the n-th makes version n of version n - 1."""
    names = sorted(one.name for one in resources.files(__package__).iterdir())
    return tuple(map(_text, ["schema.sql", *filter(_MIGRATION.match, names)]))


def sql(name: str) -> str:
    """Return a statement of queries.sql. Raises KeyError for a name that it does not have."""
    return _statements()[name]


@functools.cache
def _statements() -> dict[str, str]:
    _, *parts = _NAME.split(_text("queries.sql"))
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def header(path: Path) -> bytes:
    """Return the beginning of a file, empty without one. Raises OSError when it is unreadable."""
    try:
        with path.open("rb") as file:
            return file.read(20)
    except FileNotFoundError:
        return b""


def is_live(header: bytes) -> bool:
    """Whether some of a ledger may be in the -wal beside it; `back_up` makes files without one."""
    return header[18:] == _OF_WAL


def open_file(path: str, steps: Sequence[str]) -> Database:
    """Open or create a ledger: checked, of the newest schema, each commit durable.

    `steps` are `scripts()`. A file of an older schema is copied to `<path>.v<version>` before it is
    changed. Raises `StorageError` when it cannot be opened, is damaged, or is of a newer schema.
    """
    with refusals(path):
        database = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
        return _prepared(database, path, steps)


def open_copy(path: str, steps: Sequence[str]) -> Database:
    """Return a copy of a ledger in memory; the file is only read. Raises as `open_file`."""
    with refusals(path):
        database = sqlite3.connect(IN_MEMORY, isolation_level=None)
        try:
            with _reading(Path(path)) as source:
                source.backup(database)
        except BaseException:
            database.close()
            raise
        return _prepared(database, path, steps)


def back_up(source: Path, target: Path) -> int:
    """Copy a file that others may be writing to; return how many jobs are in the copy.

    The copy is one moment's state, checked, and on the disk. Raises `StorageError` when `target`
    exists or cannot be made, or the source cannot be read or is damaged.
    """
    if target.exists():
        raise StorageError(f"{target} exists already; choose another name or move it away")
    with refusals(str(source)), _reading(source) as database:
        return _copy(database, target)


@contextlib.contextmanager
def refusals(path: str) -> Iterator[None]:
    """Turn what SQLite says into a `StorageError` that names the file and the remedy."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        remedy = ""
        if code in _DAMAGED:
            remedy = f"; the file is damaged: {RESTORE}"
        elif code in _IN_USE:
            remedy = "; is another coordinator using it?"
        raise StorageError(f"ledger {path}: {error}{remedy}") from error


@contextlib.contextmanager
def transaction(database: Database) -> Iterator[None]:
    """Everything inside becomes durable together, or none of it when an exception leaves it."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        _roll_back(database)
        raise


def _prepared(database: Database, path: str, steps: Sequence[str]) -> Database:
    database.row_factory = sqlite3.Row
    try:
        database.execute("PRAGMA synchronous = FULL")
        version = _version(database, path, len(steps))
        _check(database, path)
        (_, _, file), *_ = database.execute("PRAGMA database_list")
        if 0 < version < len(steps) and file:
            _copy(database, Path(f"{path}.v{version}"))
        for number, script in enumerate(steps[version:], version + 1):
            # Foreign keys are off here, so that a script may rebuild a table; hence the check.
            database.executescript(f"BEGIN IMMEDIATE; {script}\n; PRAGMA user_version = {number};")
            _check(database, path)
            database.execute("COMMIT")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        _roll_back(database)
        database.close()
        raise
    return database


def _version(database: Database, path: str, newest: int) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > newest:
        raise StorageError(
            f"ledger {path}: schema version {version}; this program knows {newest}: install the "
            "version that wrote it"
        )
    return int(version)


def _check(database: Database, path: str) -> None:
    """Raise `StorageError` when pages, indices or rows of the file contradict each other."""
    (verdict,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        what = verdict.rpartition("***")[2].strip()
        raise StorageError(f"ledger {path}: damaged ({what}): {RESTORE}")
    stray = database.execute("PRAGMA foreign_key_check").fetchone()
    if stray is not None:
        raise StorageError(
            f"ledger {path}: damaged (row {stray[1]} of {stray[0]} belongs to no row of "
            f"{stray[2]}): {RESTORE}"
        )


def _copy(database: Database, target: Path) -> int:
    disk, making = RealDisk(), target.with_name(target.name + ".making")
    try:
        disk.unlink(making)
        making.touch()  # SQLite says the same of this file as of the ledger
        with contextlib.closing(sqlite3.connect(making, isolation_level=None)) as copy:
            database.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal and -shm
            _check(copy, str(making))
            (jobs,) = copy.execute("SELECT count(*) FROM jobs").fetchone()
        with making.open("r+b") as file:
            disk.sync(file)
        disk.replace(making, target)
        disk.sync_folder(target.parent)
    except OSError as error:
        remedy = "is the disk full?"
        if error.errno in _SHUT:
            remedy = "it needs a folder that is there and that this user may write to"
        raise StorageError(f"{target}: {error.strerror or error}; {remedy}") from error
    finally:
        with contextlib.suppress(OSError):
            disk.unlink(making)
    return int(jobs)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Database]:
    uri = path.absolute().as_uri() + "?mode=ro"
    database = sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None)
    with contextlib.closing(database):
        yield database


def _roll_back(database: Database) -> None:
    if database.in_transaction:
        database.execute("ROLLBACK")
