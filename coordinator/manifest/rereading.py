"""Reads a manifest again and again: a job whose text has not changed is not read anew.

The text is cut before each `[[jobs]]`; every piece that was read before stands for the job that it
was. A piece is read by itself, which says the same as reading the whole: a header ends whatever
came before it. Where that may not hold (texts of many lines may look like headers, lists may stand
where a header would), and whenever anything is wrong, the whole is read the plain way, which alone
tells what is wrong, and where.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.manifest.lines import Lines
from coordinator.manifest.manifest_keys import Defaults
from coordinator.manifest.reader import MAX_JOBS, Reader, parse_manifest

Trainers = Mapping[str, Mapping[str, JsonValue]]

_LONG_TEXTS: Final = ('"""', "'''")
_HEADER: Final = re.compile(r"^[ \t]*\[[^\n]*", re.MULTILINE)
_JOB: Final = re.compile(r"\s*\[\[[ \t]*jobs[ \t]*\]\]")
_OF_JOB: Final = re.compile(r"\s*\[\[?[ \t]*jobs[ \t]*\.")


class PlanReader:
    """Reads one manifest, whenever it is asked to, and remembers its jobs."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._known: dict[bytes, JobSpec] = {}
        self._defaults = Defaults()
        self._trainers: Trainers = {}

    def parse(self, path: Path, text: str, trainers: Trainers) -> Plan:
        """Return the plan in the text of the file at `path`, see `manifest.parse_manifest`.

        Raises `ManifestError` with every problem of the file.
        """
        try:
            plan = self._by_pieces(text, trainers)
        except RecursionError:
            plan = None
        return parse_manifest(path, text, trainers) if plan is None else plan

    def _by_pieces(self, text: str, trainers: Trainers) -> Plan | None:
        """Return the plan; none when it has to be read the plain way."""
        if any(quotes in text for quotes in _LONG_TEXTS):
            return None
        pieces = _cut(text)
        head = None if pieces is None else _head(pieces[0], trainers)
        if pieces is None or head is None or len(pieces[1]) > MAX_JOBS:
            return None
        defaults, plan = head
        self._forget_others(defaults, trainers)
        found: dict[bytes, JobSpec] = {}
        for piece in pieces[1]:
            digest = hashlib.sha256(piece.encode()).digest()
            spec = self._known.get(digest) or _job(piece, defaults, trainers)
            if spec is None:
                return None
            found[digest] = spec
        if len(pieces[1]) > min(len({getattr(one, key) for one in found.values()}) for key in _OWN):
            return None  # two of one name, or of one id
        self._known = found
        return replace(plan, jobs=tuple(found.values()))

    def _forget_others(self, defaults: Defaults, trainers: Trainers) -> None:
        """Forget the jobs that would be read otherwise now."""
        if defaults != self._defaults:
            self._known = {}
        before, self._trainers, self._defaults = self._trainers, trainers, defaults
        same = {model for model, schema in trainers.items() if before.get(model) == schema}
        self._known = {key: one for key, one in self._known.items() if one.model in same}


_OWN: Final = ("name", "job_id")


def _cut(text: str) -> tuple[str, list[str]] | None:
    """Return all that is no job, and the text of each job; none when that cannot be told."""
    rest: list[str] = []
    jobs: list[str] = []
    into, begin = rest, 0
    for end, kind in _headers(text):
        if kind is _OF_JOB:
            if into is rest:
                return None
            continue
        into.append(text[begin:end])
        into, begin = (jobs if kind is _JOB else rest), end
    into.append(text[begin:])
    return "".join(rest), jobs


def _headers(text: str) -> Iterator[tuple[int, re.Pattern[str] | None]]:
    for header in _HEADER.finditer(text):
        kinds = (kind for kind in (_JOB, _OF_JOB) if kind.match(header[0]))
        yield header.start(), next(kinds, None)


def _head(text: str, trainers: Trainers) -> tuple[Defaults, Plan] | None:
    tables = _parsed(text)
    if tables is None or "jobs" in tables:
        return None
    reader = Reader("", trainers, Lines(""))
    head = reader.head(tables)
    return None if reader.problems else head


def _job(text: str, defaults: Defaults, trainers: Trainers) -> JobSpec | None:
    tables = _parsed(text)
    if tables is None or tables.keys() != {"jobs"} or len(tables["jobs"]) != 1:
        return None
    reader = Reader("", trainers, Lines(""))
    spec = reader.entry(tables["jobs"][0], 0, defaults, {})
    return None if reader.problems else spec


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
