"""Reads a manifest: TOML to a plan, with all errors at once. The format is manifest.md.

Every error names the file, the job, the key and the remedy. A file with errors gives no plan, so
nothing that runs is touched by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import JsonValue, ValidationError
from pydantic_core import to_json

from broker import toml_text
from broker.file_names import is_plain
from broker.protocol.hyperschema import check_hyper, did_you_mean, meant
from broker.protocol.messages import MAX_PLAN_NAME, Needs
from broker.protocol.topics import is_host
from broker.protocol.value_faults import fault_words
from coordinator.jobs.plan_entries import (
    HostPolicy,
    JobSpec,
    Plan,
    job_id,
)
from coordinator.manifest.lines import Lines
from coordinator.manifest.manifest_keys import (
    Defaults,
    HostTable,
    JobTable,
    Table,
    is_plan_name,
)
from coordinator.manifest.problems import ManifestError, Problem, single_problem

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION: Final = 1
MAX_JOBS: Final = 100_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ID: Final = re.compile(r"[0-9a-f]{64}")

# No longer than an assignment can carry: `broker.protocol.messages.Assign`.
MAX_DEPTH: Final = 32  # of lists and tables in one another
MAX_CARRIED_BYTES: Final = 96 * 1024  # of hyperparameters and train_hosts
MAX_LIST_BYTES: Final = 64 * 1024  # of names, or patterns, that answers bear

_T = TypeVar("_T", bound=Table)
_TOP: Final = ("schema_version", "name", "defaults", "hosts", "jobs")


def parse_manifest(
    path: Path, text: str, trainers: Mapping[str, Mapping[str, JsonValue]]
) -> Plan:  # fmt: skip
    """Return the plan in the text of the file at `path`; see `load_manifest`."""
    tables = _parse_toml(path, text)
    try:
        reader = Reader(str(path), trainers, Lines(text))
        plan = reader.read(tables)
    except RecursionError:  # `a.b.c = 1` may go on for long
        raise single_problem(
            path, "has tables hundreds deep in one another; write it flat"
        ) from None
    if reader.problems:
        problems = sorted(reader.problems, key=lambda one: one.line or 0)
        raise ManifestError(tuple(problems), plan)
    return plan


def read_job(table: dict[str, Any], trainers: Mapping[str, Mapping[str, JsonValue]]) -> JobSpec:
    """Return the job in a table such as one of [[jobs]]. Raises `ManifestError`."""
    reader = Reader("", trainers, Lines(""))
    spec = reader.read_one(table)
    if spec is None or reader.problems:
        raise ManifestError(tuple(reader.problems))
    return spec


def _parse_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return toml_text.tables(text)
    except toml_text.TomlError as error:
        raise single_problem(path, str(error), error.line) from None


class Reader:
    """Collects `problems` while it turns tables into a plan."""

    def __init__(
        self, file: str, trainers: Mapping[str, Mapping[str, JsonValue]], lines: Lines
    ) -> None:
        """Prepare to read `file`; see `load_manifest`."""
        self._file = file
        self._trainers = trainers
        self._lines = lines
        self._place: tuple[str | int, ...] = ()  # the table that is being read
        self.problems: list[Problem] = []

    def read(self, tables: dict[str, Any]) -> Plan:
        """Return the plan; when there are problems, what could be read of it."""
        defaults, plan = self.head(tables)
        return replace(plan, jobs=tuple(self._jobs(tables.get("jobs", []), defaults)))

    def head(self, tables: dict[str, Any]) -> tuple[Defaults, Plan]:
        """Return what holds for every job, and the plan without its jobs."""
        for key in tables:
            if key not in _TOP:
                message = f"unknown key{did_you_mean(key, list(_TOP))}"
                self.problems.append(Problem(self._file, "", key, message, self._lines.first(key)))
        version = tables.get("schema_version")
        if version is None:
            self._problem("", "schema_version", "missing; write schema_version = 1 at the top")
        elif version != SCHEMA_VERSION or type(version) is not int:
            self._problem("", "schema_version", f"is {version!r}; this program knows 1")
        name = self._plan_name(tables)
        self._place = ("defaults",)
        defaults = self._table(Defaults, tables.get("defaults", {}), "[defaults]") or Defaults()
        hosts = self._hosts(tables.get("hosts", {}))
        return defaults, Plan((), hosts, defaults.prefer_cuda_grace_s, name)

    def _plan_name(self, tables: dict[str, Any]) -> str:
        if "name" not in tables or is_plan_name(tables["name"]):
            return str(tables.get("name", ""))
        most = f"1 to {MAX_PLAN_NAME} printable characters, with no blank at either end"
        self._problem("", "name", f"must be a string of {most}; shorten it, or leave it out")
        return ""

    def read_one(self, table: dict[str, Any]) -> JobSpec | None:
        """Return the job that somebody asks for beside the manifest, none when it is broken."""
        job = self._table(JobTable, table, "", is_job=True)
        if job is None:
            self._check_broken(table, "")
            return None
        job.hyper = self._check_model(job.model, job.hyper, "")
        spec = self._spec(job, "")
        if job.name is None:
            spec = replace(spec, name=f"{spec.model}-{spec.mode}"[:55] + f"-{spec.job_id[:8]}")
        self._unique({}, spec.name, 0, "")
        return spec

    def _hosts(self, tables: Any) -> dict[str, HostPolicy]:
        self._place = ()
        if not isinstance(tables, dict):
            self._problem("", "hosts", "must be tables; write [hosts.NAME]")
            return {}
        policies = {}
        for name, table in tables.items():
            where = f"[hosts.{name}]"
            self._place = ("hosts", name)
            if not is_host(name):
                self._problem("", where, f"{name!r} cannot be a host: {_HOST_RULE}")
            host = self._table(HostTable, table, where)
            if host is not None:
                lists = {"allow_jobs": host.allow_jobs, "deny_jobs": host.deny_jobs}
                self._check_lists("", f"{where} ", lists, "a pattern stands for many jobs")
                fields = host.model_dump().items()
                told: dict[str, Any] = {
                    key: tuple(one) if isinstance(one, list) else one for key, one in fields
                }
                policies[name] = HostPolicy(name=name, **told)
        return policies

    def _jobs(self, tables: Any, defaults: Defaults) -> list[JobSpec]:
        self._place = ()
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            self._problem("", "jobs", "must be a list of tables; write [[jobs]] before each job")
            return []
        if len(tables) > MAX_JOBS:
            self._problem("", "jobs", f"{len(tables)} jobs; at most {MAX_JOBS} are taken")
            return []
        specs = []
        before: dict[str, int] = {}
        names: dict[str, int] = {}
        for index, table in enumerate(tables):
            label = _label(table, index)
            spec = self.entry(table, index, defaults, names)
            specs.append(spec)
            if not spec.job_id:
                continue
            if spec.job_id in before:
                first = before[spec.job_id]
                message = (
                    f"is the same job as {_label(tables[first], first)} ({self._line(first)}): "
                    "model, mode, hyper, split_recipe, train_hosts and seed are equal; change one, "
                    "or remove an entry"
                )
                self._problem(label, "", message)
            before.setdefault(spec.job_id, index)
        return specs

    def entry(
        self, table: dict[str, Any], index: int, defaults: Defaults, names: dict[str, int]
    ) -> JobSpec:
        """Return the job of one table, without `job_id` if it is broken; `names` came before."""
        label = _label(table, index)
        self._place = ("jobs", index)
        table = defaults.of_job(table)
        job = self._table(JobTable, table, label, is_job=True)
        if job is None:
            spec, is_named = self._check_broken(table, label)
            if is_named:
                self._unique(names, spec.name, index, label)
            return replace(spec, job_id="", name=label)
        given, job.hyper = job.hyper, self._check_model(job.model, job.hyper, label)
        spec = self._spec(job, label)
        self._unique(names, spec.name, index, label)
        return spec if len(job.hyper) == len(given) else replace(spec, job_id="")

    def _line(self, index: int) -> str:
        line = self._lines.of(("jobs", index))
        return f"job {index + 1}" if line is None else f"on line {line}"

    def _unique(self, names: dict[str, int], name: str, index: int, label: str) -> None:
        if not _NAME.fullmatch(name) or _ID.fullmatch(name):
            message = "must be 1 to 64 of a-z, A-Z, 0-9, '.', '_', '-', and not look like an id"
            self._problem(label, "name", message)
        elif not is_plain(name):
            message = f"{name!r} cannot be the name of a folder on Windows, where results may go"
            self._problem(label, "name", f"{message}; choose another")
        if name in names:
            other = self._line(names[name])
            message = f"{name!r} is the name of the job {other} as well; give one another name"
            self._problem(label, "name", message)
        names.setdefault(name, index)

    def _check_lists(
        self, label: str, where: str, lists: Mapping[str, list[str]], remedy: str
    ) -> None:
        for key, names in lists.items():
            size_bytes = len(to_json(names))
            if size_bytes > MAX_LIST_BYTES:
                most = MAX_LIST_BYTES // 1024
                message = f"takes {size_bytes // 1024} KiB; at most {most} are taken: {remedy}"
                self._problem(label, f"{where}{key}", message, (key,))

    def _spec(self, job: JobTable, label: str) -> JobSpec:
        lists = {"allowed_hosts": job.allowed_hosts, "denied_hosts": job.denied_hosts}
        self._check_lists(label, "", lists, "let [hosts.NAME] say allow_jobs or deny_jobs")
        for key in ("allowed_hosts", "denied_hosts"):
            for host in getattr(job, key):
                if not is_host(host):
                    self._problem(label, key, f"{host!r} cannot be a host: {_HOST_RULE}")
        for host in sorted({*job.allowed_hosts} & {*job.denied_hosts}):
            self._problem(label, "denied_hosts", f"{host!r} is in allowed_hosts as well")
        train_hosts = tuple(sorted({*job.train_hosts}))
        for host in train_hosts:
            if not host or "," in host or host.startswith("-"):
                self._problem(label, "train_hosts", f"{host!r}: no commas, no leading '-'")
        carried_bytes = len(to_json([job.hyper, train_hosts]))
        if carried_bytes > MAX_CARRIED_BYTES:
            message = (
                f"with train_hosts it takes {carried_bytes // 1024} KiB, and an assignment carries "
                f"{MAX_CARRIED_BYTES // 1024}; put long lists into a file of the trainer's"
            )
            self._problem(label, "hyper", message)
        recipe, seed = job.split_recipe, job.seed
        same = ("model", "mode", "hyper", "split_recipe", "seed", "n_resamples", "priority",
                "on_lost", "retries")  # fmt: skip
        return JobSpec(
            job_id=job_id(job.model, job.mode, job.hyper, recipe, train_hosts, seed),
            name=f"{job.model}-{job.mode}" if job.name is None else job.name,
            train_hosts=train_hosts,
            needs=Needs(**{name: getattr(job, name) for name in Needs.model_fields}),
            allowed_hosts=tuple(job.allowed_hosts),
            denied_hosts=tuple(job.denied_hosts),
            timeout_s=job.timeout_s or None,
            stall_timeout_s=job.stall_timeout_s or None,
            **{name: getattr(job, name) for name in same},
        )

    def _check_broken(self, table: Mapping[str, Any], label: str) -> tuple[JobSpec, bool]:
        """Check the rest of a faulty job; return what is left, and whether its name is known."""
        faulty: set[str | int] = set()
        try:
            JobTable.model_validate(table)
        except ValidationError as error:
            faulty = {fault["loc"][0] for fault in error.errors(include_url=False) if fault["loc"]}
        rest = {key: value for key, value in table.items() if key not in faulty}
        hyper = table.get("hyper")
        usable = self._check_model(
            rest.get("model"), hyper if isinstance(hyper, dict) else {}, label
        )
        rest |= {} if "hyper" in faulty else {"hyper": usable}
        job = JobTable.model_validate({"model": "", "mode": "oracle"} | rest)
        is_named = "name" in rest or ("name" not in faulty and {"model", "mode"} <= rest.keys())
        return self._spec(job, label), is_named

    def _check_model(self, model: str | None, hyper: dict[str, Any], label: str) -> dict[str, Any]:
        """Return the hyperparameters that an id can be made of; say what is wrong with others."""
        likely = model
        if model is not None and model not in self._trainers:
            likely = meant(model, self._trainers)
            known = did_you_mean(model, self._trainers)
            more = " (one of your own is known once a host that has it has come)"
            self._problem(label, "model", f"unknown model {model!r}{known}{more}")
        elif model is not None and not is_plain(model):
            message = f"{model!r} cannot be the name of a folder on Windows, where results may go"
            self._problem(label, "model", f"{message}; give the trainer another name")
        schema = {} if likely is None else self._trainers[likely]
        faulty = set()
        for key, message in check_hyper(hyper, schema, likely or ""):
            faulty.add(key)
            self._problem(label, f"hyper.{key}", message)
        usable = {key: value for key, value in hyper.items() if _is_json(value)}
        for key in sorted(hyper.keys() - usable.keys() - faulty):
            message = (
                "must be finite numbers, strings, booleans, lists or tables of them, at most "
                f"{MAX_DEPTH} deep: no dates"
            )
            self._problem(label, f"hyper.{key}", message)
        return usable

    def _table(self, model: type[_T], table: Any, where: str, *, is_job: bool = False) -> _T | None:
        try:
            return model.model_validate(table)
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                key = ".".join(str(part) for part in fault["loc"] if isinstance(part, str))
                message = fault_words(fault, list(model.model_fields))
                shown = key if is_job else f"{where} {key}".strip()
                self._problem(where if is_job else "", shown, message, fault["loc"])
            return None

    def _problem(
        self, job: str, key: str, message: str, loc: tuple[str | int, ...] | None = None
    ) -> None:
        """Note a problem; `loc` is the key as a path, where it is not plain from `key`."""
        path = self._place + (tuple(key.split(".")) if loc is None else loc)
        self.problems.append(Problem(self._file, job, key, message, self._lines.of(path)))


_HOST_RULE: Final = "a-z, 0-9, '.', '_', '-', starting with a letter or digit, not with 'fleet-'"


def _label(table: Mapping[str, Any], index: int) -> str:
    name = table.get("name")
    if name is None and "model" in table and "mode" in table:
        name = f"{table.get('model')}-{table.get('mode')}"
    # What is no name may hold anything, control characters too: it is not repeated.
    return name if isinstance(name, str) and _NAME.fullmatch(name) else f"job {index + 1}"


def _is_json(value: Any) -> bool:
    """Tell whether a message can bear what TOML can: no dates, no nan, no inf, no depths."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return _is_shallow(value, MAX_DEPTH)


def _is_shallow(value: Any, most: int) -> bool:
    inner = [*value.values()] if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return True
    return most > 0 and all(_is_shallow(one, most - 1) for one in inner)
