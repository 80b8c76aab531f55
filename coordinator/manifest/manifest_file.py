"""The file of a manifest, read once. It may lie on a disk that hangs, so a thread reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from broker import toml_text
from broker.protocol.messages import TrainerInfo
from broker.system.deadline import ANSWER_S, within
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.data_keys import Datasets
from coordinator.manifest.problems import single_problem
from coordinator.manifest.reader import parse_manifest

MAX_BYTES: Final = 32 * 1024 * 1024


def load_manifest(
    path: Path, trainers: Mapping[str, TrainerInfo], datasets: Datasets = None
) -> Plan:
    """Return the plan in a file; `trainers` are known by model. Raises `ManifestError`."""
    text = text_of(path, lambda: within(ANSWER_S, lambda: _read(path)))
    return parse_manifest(path, text, trainers, datasets)


def text_of(path: Path, read: Callable[[], bytes]) -> str:
    """Return the text of the bytes that `read` returns. Raises `ManifestError`."""
    try:
        data = read()
        if len(data) > MAX_BYTES:
            raise single_problem(path, f"larger than {MAX_BYTES // 1024**2} MiB; split the plan")
        return toml_text.decoded(data)
    except TimeoutError:
        why = f"has not answered in {ANSWER_S:g} s; see whether its disk, or its network, is there"
        raise single_problem(path, why) from None
    except OSError as error:
        raise single_problem(path, f"cannot be read: {error.strerror}; check the path") from None
    except toml_text.TomlError as error:
        raise single_problem(path, str(error), error.line) from None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)
