"""Is the prepared data whole? By the hashes in its own schema; needs neither numpy nor arrow."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

from agent.trainer.errors import BadInputError
from agent.trainer.schema import SCHEMA_FILE, FeatureSchema, read_json
from broker.findings import Finding, fail, ok, warn

HASHING_S: Final = 60.0
_BLOCK_BYTES: Final = 1 << 20
_MAKE: Final = "python -m agent.trainer.prepare --help tells how it is made"


def check_data(folder: Path | None, clock: Callable[[], float] = time.monotonic) -> Finding:
    """Tell whether `folder` has prepared data whose files are what the schema says.

    Hashing stops after a minute by `clock` (monotonic seconds); then it says how far it came.
    """
    if folder is None:
        remedy = "set `data` in [agent], or --data"
        return warn("data", "no folder of prepared data is named: no job can be taken", remedy)
    try:
        if not (folder / SCHEMA_FILE).is_file():
            return fail("data", f"{folder}: no prepared data is there", _MAKE)
        schema = read_json(folder / SCHEMA_FILE, FeatureSchema)
    except BadInputError as error:
        return fail("data", f"{folder}: {error}", _MAKE)
    except OSError as error:
        remedy = "let the user that the agent runs as read it"
        return fail("data", f"{folder}: {error.strerror or error}", remedy)
    deadline_s = clock() + HASHING_S
    for count, (name, digest) in enumerate(sorted(schema.files.items())):
        if clock() > deadline_s:
            text = f"{folder}: {count} of {len(schema.files)} files checked in {HASHING_S:.0f} s"
            return warn("data", text, "it is large, or the disk is slow")
        problem = _problem(folder, name, digest)
        if problem:
            return fail("data", f"{folder}: {name}: {problem}", "copy or prepare it anew")
    hosts = len(schema.hosts)
    return ok("data", f"{folder}: {schema.windows} windows of {hosts} hosts, every file checked")


def _problem(folder: Path, name: str, digest: str) -> str:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return "is outside the folder"
    found = hashlib.sha256()
    try:
        with (folder / name).open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                found.update(block)
    except OSError as error:
        return error.strerror or "cannot be read"
    return "" if found.hexdigest() == digest else "is not the file that the schema names"
