"""Which version a trainer of one's own is: a hash of its code, and of what else it reads."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from broker.system.deadline import ANSWER_S, Aside
from broker.system.trainer_settings import OwnTrainer

CHARS: Final = 16  # of a sha256 in hex: to be read by people


class Versions:
    """The versions of trainers; a file is read again only when it was written since."""

    def __init__(self, own: Mapping[str, OwnTrainer]) -> None:
        """Read nothing yet."""
        self.known: dict[str, str] = {}
        self._own = own
        self._aside = Aside()
        self._digests: dict[Path, tuple[tuple[int, int, int], str]] = {}

    def look(self, answer_s: float = ANSWER_S) -> dict[str, str]:
        """Return each trainer's version as it is now; empty where a file cannot be read.

        They are `known` then. What takes longer than `answer_s` to read is read on aside, and has
        no version until that is done.
        """
        try:
            self.known = self._aside.do(self._versions).result(answer_s)
        except TimeoutError:
            self.known = dict.fromkeys(self._own, "")
        return self.known

    def _versions(self) -> dict[str, str]:
        return {name: self._version(trainer) for name, trainer in self._own.items()}

    def _version(self, trainer: OwnTrainer) -> str:
        program, *words = trainer.command
        try:
            reads = [sorted(self._tree(Path(one))) for one in trainer.reads]
            # Other words may be of this host alone: its name, a file that the trainer writes.
            script = next(filter(_is_file, words), None)
            code = words if script is None else [self._digest(Path(script))]
            if script is None and not reads:
                code = [self._digest(Path(shutil.which(program) or program)), *words]
        except OSError:
            return ""
        what = json.dumps([trainer.telemetry, code, reads])
        return hashlib.sha256(what.encode()).hexdigest()[:CHARS]

    def _tree(self, path: Path) -> Iterator[tuple[str, str]]:
        """Yield the files in a folder, or a file alone, with their hashes."""
        if not path.is_dir():
            yield "", self._digest(path)
            return
        for folder, folders, files in os.walk(path):
            folders[:] = [one for one in folders if _counts(one)]
            for name in filter(_counts, files):
                file = Path(folder, name)
                yield file.relative_to(path).as_posix(), self._digest(file)

    def _digest(self, path: Path) -> str:
        found = path.stat()
        seen = found.st_mtime_ns, found.st_size, found.st_ino
        known = self._digests.get(path)
        if known is None or known[0] != seen:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            known = self._digests[path] = seen, digest
        return known[1]


def _is_file(word: str) -> bool:
    """Whether a word of a command names a file; a trainer starts in a folder of its own."""
    try:
        return Path(word).is_absolute() and Path(word).is_file()
    except OSError:  # it is too long to be a name
        return False


def _counts(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"
