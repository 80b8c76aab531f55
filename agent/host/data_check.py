"""Is the prepared data whole? By the hashes in its own schema; needs neither numpy nor arrow."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from agent.host.data_folder import ANSWER_S, MAKE
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.schema import SCHEMA_FILE, FeatureSchema, read_json
from broker.doctor.checks import LOOK_AT_DISK
from broker.doctor.findings import Finding, fail, ok, warn
from broker.system.deadline import paced

HASHING_S: Final = 60.0
_BLOCK_BYTES: Final = 1 << 20


def check_data(folder: Path | None, answer_s: float = ANSWER_S) -> Finding:
    """Tell whether `folder` has prepared data whose files are what the schema says.

    Hashing stops after a minute; then it says how far it came. A disk that says nothing for
    `answer_s` is not waited for.
    """
    if folder is None:
        remedy = "set `data` in [agent], or --data"
        return warn(
            "data", "no folder of prepared data is named: no job that reads it can be taken", remedy
        )
    try:
        *_, found = paced(answer_s, _looked(folder))
    except TimeoutError:
        text = f"{folder}: the disk has not answered in {answer_s:g} s"
        return fail("data", text, LOOK_AT_DISK)
    assert found is not None  # noqa: S101 - a finding is the last that `_looked` yields
    return found


def _looked(folder: Path) -> Iterator[Finding | None]:
    """Yield none after each thing that was read, and what was found at the end."""
    try:
        (folder / SCHEMA_FILE).stat()
        schema = read_json(folder / SCHEMA_FILE, FeatureSchema)
    except (FileNotFoundError, NotADirectoryError):
        yield fail("data", f"{folder}: no prepared data is there", MAKE)
        return
    except BadInputError as error:
        yield fail("data", f"{folder}: {error}", MAKE)
        return
    except OSError as error:
        remedy = "let the user that the agent runs as read it"
        yield fail("data", f"{folder}: {error.strerror or error}", remedy)
        return
    deadline_s = time.monotonic() + HASHING_S
    for count, (name, digest) in enumerate(sorted(schema.files.items())):
        if time.monotonic() > deadline_s:
            text = f"{folder}: {count} of {len(schema.files)} files checked in {HASHING_S:.0f} s"
            yield warn("data", text, "it is large, or the disk is slow")
            return
        problem = yield from _problem(folder, name, digest)
        if problem:
            yield fail("data", f"{folder}: {name}: {problem}", "copy or prepare it anew")
            return
    hosts = len(schema.hosts)
    yield ok("data", f"{folder}: {schema.windows} windows of {hosts} hosts, every file checked")


def _problem(folder: Path, name: str, digest: str) -> Generator[None, None, str]:
    """Return what is wrong with a file, nothing where it is whole; yield after each block of it."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return "is outside the folder"
    found = hashlib.sha256()
    try:
        with (folder / name).open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                found.update(block)
                yield
    except OSError as error:
        return error.strerror or "cannot be read"
    return "" if found.hexdigest() == digest else "is not the file that the schema names"
