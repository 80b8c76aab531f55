"""Packs a program's folder as a parcel: a deterministic bundle, named by its sha256.

In a git work tree those files are packed that git tracks or would add; elsewhere all regular files
but hidden folders and caches. A bundle keeps no modes: no file of a parcel is executable.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from broker.errors import ConfigError, StorageError, why
from broker.figures import size
from broker.programs.program_faults import LOCK_FILES
from broker.programs.program_file import PROGRAM_FILE
from broker.system import children
from broker.system.bundle import BundleInfo, bundle_files

LIMIT_BYTES: Final = 64 * 1024**2  # of all files of a program, unpacked
GIT_TIMEOUT_S: Final = 60.0
_LEFT_OUT: Final = frozenset({".git", ".venv", "__pycache__"})  # whatever git says
_LARGEST: Final = 3  # files that the error of a large program names
# A folder of somebody else must not start a program of theirs: `core.fsmonitor` names one.
_LIST: Final = ("-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others",
                "--exclude-standard")  # fmt: skip


def pack(folder: Path, out: Path, environment: Mapping[str, str] = os.environ) -> BundleInfo:
    """Pack the program in `folder` into the file `out`; return its digest and size.

    Raises `ConfigError` for files that no parcel may hold, and OSError when the
    disk refuses; `out` does not exist then.
    """
    try:
        return bundle_files(files_of(folder, environment), out)
    except StorageError as error:
        raise ConfigError(f"{folder}: {error}", "rename it, or leave it out") from None


def files_of(folder: Path, environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return the files that `pack` packs, by their names in the parcel. Raises `ConfigError`.

    `environment` is git's, without its variables `GIT_...`: they may name another repository.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is no folder; name the folder of {PROGRAM_FILE}")
    is_of_git = any((above / ".git").exists() for above in (folder, *folder.parents))
    names = _of_git(folder, environment) if is_of_git else _of_tree(folder)
    files = {name: folder / name for name in sorted(set(names))}
    for name in (PROGRAM_FILE, *sorted(set[str]().union(*LOCK_FILES))):
        if name not in files and (folder / name).exists():
            raise ConfigError(f"{folder / name}: git ignores it; take it out of .gitignore")
    if PROGRAM_FILE not in files:
        raise ConfigError(f"{folder / PROGRAM_FILE}: is missing; each program needs it")
    _check_size(folder, {name: _size_bytes(path) for name, path in files.items()})
    return files


def _of_git(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of what git tracks or would add, as far as it is on the disk."""
    told = {name: value for name, value in environment.items() if not name.startswith("GIT_")}
    remedy = "mend git, or copy the folder out of its git repository"
    try:
        answer = children.answer_of(("git", "-C", str(folder), *_LIST), GIT_TIMEOUT_S, told)
    except OSError as error:  # `TimeoutError` is one
        is_missing = isinstance(error, FileNotFoundError)
        wrong = "there is no git here" if is_missing else f"git cannot list its files: {why(error)}"
        raise ConfigError(f"{folder}: {wrong}", remedy) from None
    if answer.code:
        # All of it would be packed otherwise, and secrets that git ignores with it.
        complaint = answer.complaint("it says nothing")
        raise ConfigError(f"{folder}: git cannot list its files: {complaint}", remedy)
    for name in filter(None, answer.output.split("\0")):
        if "\ufffd" in name:
            raise ConfigError(f"{folder / name}: the name is not UTF-8; rename the file")
        if _LEFT_OUT.isdisjoint(name.split("/")) and os.path.lexists(folder / name):
            yield name


def _of_tree(folder: Path) -> Iterator[str]:
    for root, folders, files in os.walk(folder, onerror=_unreadable):
        here = Path(root)
        folders[:] = [name for name in folders if name[0] != "." and name not in _LEFT_OUT]
        linked = [name for name in folders if (here / name).is_symlink()]
        for name in (*files, *linked):
            yield (here / name).relative_to(folder).as_posix()


def _unreadable(error: OSError) -> None:
    raise ConfigError(f"{error.filename}: cannot be read: {why(error)}")


def _size_bytes(path: Path) -> int:
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(
            f"{path}: is a git repository of its own; let .gitignore name it, or remove its .git"
        )
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(
            f"{path}: is no regular file; put a copy in place of a link, or leave it out"
        )
    return status.st_size


def _check_size(folder: Path, sizes_bytes: Mapping[str, int]) -> None:
    total_bytes = sum(sizes_bytes.values())
    if total_bytes <= LIMIT_BYTES:
        return
    largest = sorted(sizes_bytes, key=lambda name: (-sizes_bytes[name], name))[:_LARGEST]
    told = ", ".join(f"{name} ({size(sizes_bytes[name])})" for name in largest)
    raise ConfigError(
        f"{folder}: has {size(total_bytes)}, and a program at most {size(LIMIT_BYTES)}; leave out "
        f"what it does not need; the largest files are {told}"
    )
