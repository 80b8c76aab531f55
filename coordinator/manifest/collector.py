"""Collects what is wrong with a manifest while it is read: by job and key, with the line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from broker.protocol.value_faults import fault_words
from broker.toml_lines import Lines
from coordinator.manifest.manifest_keys import Table
from coordinator.manifest.problems import Problem

MAX_LIST_BYTES: Final = 64 * 1024  # of names, or patterns, that answers bear

_T = TypeVar("_T", bound=Table)


class Collector:
    """Notes `problems` of the table at `_place`, as they are found."""

    def __init__(self, file: str, lines: Lines) -> None:
        """Begin with none; `lines` are those of the file."""
        self._file = file
        self._lines = lines
        self._place: tuple[str | int, ...] = ()  # the table that is being read
        # Keys of a table that is read by other names than were written.
        self._written: Mapping[str | int, str] = {}
        self._faulty: set[str | int] = set()  # keys of the table that was read last
        self.problems: list[Problem] = []

    def _table(self, model: type[_T], table: Any, where: str, *, is_job: bool = False) -> _T | None:
        try:
            return model.model_validate(table)
        except ValidationError as error:
            faults = error.errors(include_url=False)
            self._faulty = {key for fault in faults for key in fault["loc"][:1]}
            for fault in faults:
                loc = tuple(self._written.get(part, part) for part in fault["loc"])
                key = ".".join(part for part in loc if isinstance(part, str))
                message = fault_words(fault, list(model.model_fields))
                shown = key if is_job else f"{where} {key}".strip()
                self._problem(where if is_job else "", shown, message, loc)
            return None

    def _problem(
        self, job: str, key: str, message: str, loc: tuple[str | int, ...] | None = None
    ) -> None:
        """Note a problem; `loc` is the key as a path, where it is not plain from `key`."""
        path = self._place + (tuple(key.split(".")) if loc is None else loc)
        self.problems.append(Problem(self._file, job, key, message, self._lines.of(path)))

    def _check_lists(
        self, label: str, where: str, lists: Mapping[str, list[str]], remedy: str
    ) -> None:
        for key, names in lists.items():
            size_bytes = len(to_json(names))
            if size_bytes > MAX_LIST_BYTES:
                most = MAX_LIST_BYTES // 1024
                message = f"takes {size_bytes // 1024} KiB; at most {most} are taken: {remedy}"
                self._problem(label, f"{where}{key}", message, (key,))
