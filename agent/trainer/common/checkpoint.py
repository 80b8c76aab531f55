"""Keeps the state of a training, so that another process can go on with it.

A checkpoint is one file, replaced atomically: a hash, a line of JSON, then tensors as safetensors,
which hold no code. The hash is of all that follows, of the job and of its data: it serves no other.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from agent.trainer.common.errors import InterruptedBySignalError, plain
from agent.trainer.common.files import write_atomically
from agent.trainer.common.progress import Progress

FILE: Final = "training.checkpoint"
VERSION: Final = 2  # of what is in it: another version's fits no job


def weights_to_bytes(weights: Mapping[str, Tensor]) -> bytes:
    """Return tensors as safetensors, without metadata: that has no fixed order."""
    return save_tensors(
        {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    )


def tensors_under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix.`, without it."""
    start = len(prefix) + 1
    return {
        name[start:]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")
    }


def tensors_from_bytes(data: bytes) -> dict[str, Tensor]:
    """Return the tensors of `weights_to_bytes`. Raises ValueError for anything else."""
    try:
        return load_tensors(data)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training: facts in JSON, `epoch` among them, and tensors in bytes."""

    facts: Mapping[str, Any]
    payload: bytes


class Keeper:
    """Keeps the checkpoint of one training: every `every_s` seconds, and at SIGTERM.

    With `every_s` 0 only at SIGTERM; without a folder never. `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        progress: Progress,
        folder: Path | None = None,
        *,
        fingerprint: str = "",
        every_s: float = 0.0,
        resume: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress = progress
        self._path = None if folder is None else folder / FILE
        self._fingerprint = f"{VERSION} {fingerprint}"
        self._every_s = every_s
        self._resume = resume
        self._clock = clock
        self._kept_s = clock()

    def load(self) -> Checkpoint | None:
        """Return where to go on from, or None; a checkpoint that is of no use is logged."""
        if self._path is None or not self._resume or not self._path.exists():
            return None
        try:
            told, _, content = self._path.read_bytes().partition(b"\n")
        except OSError as error:
            self._misfit(f"it cannot be read: {plain(error)}")
            return None
        if told != self._hash(content):
            self._misfit("it is damaged, or of another job, or of other data")
            return None
        line, _, payload = content.partition(b"\n")
        facts = json.loads(line)
        self.progress.log(f"going on from a checkpoint in epoch {facts['epoch']}")
        return Checkpoint(facts, payload)

    def _misfit(self, why: str) -> None:
        self.progress.log(f"the checkpoint is left aside, the training starts anew: {why}")

    def _hash(self, content: bytes) -> bytes:
        keyed = hashlib.sha256(self._fingerprint.encode() + content)
        return keyed.hexdigest().encode()

    def step(self, capture: Callable[[], Checkpoint]) -> None:
        """Keep the state if it is time to. Raises InterruptedBySignalError if SIGTERM came."""
        asked = self.progress.interruption.asked
        due = self._every_s > 0 and self._clock() - self._kept_s >= self._every_s
        if asked or due:
            self.keep(capture)
        if asked:
            raise InterruptedBySignalError

    def keep(self, capture: Callable[[], Checkpoint]) -> None:
        """Write the checkpoint; if the disk refuses, the training goes on without."""
        if self._path is None:
            return
        checkpoint = capture()
        content = json.dumps(checkpoint.facts).encode() + b"\n" + checkpoint.payload
        try:
            write_atomically(self._path, self._hash(content) + b"\n" + content)
        except OSError as error:
            self.progress.log(f"the checkpoint could not be written: {plain(error)}")
        else:
            self.progress.checkpoint(checkpoint.facts["epoch"])
        self._kept_s = self._clock()

    def forget(self) -> None:
        """Delete the checkpoint of a training that diverged."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
