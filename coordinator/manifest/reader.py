"""Reads a manifest: TOML to a plan, with all errors at once. The format is manifest.md.

Every error names the file, the job, the key and the remedy. A file with errors gives no plan, so
nothing that runs is touched by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from broker import toml_text
from broker.file_names import is_plain
from broker.protocol.hyperschema import MAX_DEPTH, check_hyper, did_you_mean, is_json, meant
from broker.protocol.messages import MAX_PLAN_NAME, Needs, TrainerInfo
from broker.protocol.topics import is_host
from broker.toml_lines import Lines
from coordinator.jobs.plan_entries import OF_TELEMETRY, HostPolicy, JobSpec, Plan, id_of
from coordinator.manifest import linking, program_keys
from coordinator.manifest.data_keys import NO_DATA, DataReader, Datasets
from coordinator.manifest.manifest_keys import (
    Defaults,
    HostTable,
    JobTable,
    is_plan_name,
    needs_of,
)
from coordinator.manifest.problems import ManifestError, Problem, single_problem

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION: Final = 1
MAX_JOBS: Final = 100_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ID: Final = re.compile(r"[0-9a-f]{64}")

# No longer than an assignment can carry: `broker.protocol.messages.Assign`.
MAX_CARRIED_BYTES: Final = 96 * 1024  # of hyperparameters and train_hosts

_TOP: Final = ("schema_version", "name", "defaults", "hosts", "jobs")


def parse_manifest(
    path: Path, text: str, trainers: Mapping[str, TrainerInfo], datasets: Datasets = None
) -> Plan:
    """Return the plan in the text of the file at `path`; see `load_manifest`."""
    tables = _parse_toml(path, text)
    try:
        reader = Reader(str(path), trainers, Lines(text), datasets)
        plan = reader.read(tables)
    except RecursionError:  # `a.b.c = 1` may go on for long
        raise single_problem(
            path, "has tables hundreds deep in one another; write it flat"
        ) from None
    if reader.problems:
        problems = sorted(reader.problems, key=lambda one: one.line or 0)
        raise ManifestError(tuple(problems), plan)
    return plan


def read_job(
    table: dict[str, Any], trainers: Mapping[str, TrainerInfo], datasets: Datasets = NO_DATA
) -> JobSpec:
    """Return the job in a table such as one of [[jobs]]; its `after` and `inputs` have ids.

    Raises `ManifestError`.
    """
    reader = Reader("", trainers, Lines(""), datasets)
    spec = reader.entry(table, 0, Defaults(), {})
    if reader.problems:
        raise ManifestError(tuple(reader.problems))
    spec = linking.with_ids(spec, spec.inputs, spec.after)
    name = f"{spec.name[:55]}-{spec.job_id[:8]}"
    return replace(spec, name=name) if table.get("name") is None else spec


def _parse_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return toml_text.tables(text)
    except toml_text.TomlError as error:
        raise single_problem(path, str(error), error.line) from None


class Reader(DataReader):
    """Collects `problems` while it turns tables into a plan."""

    def __init__(
        self, file: str, trainers: Mapping[str, TrainerInfo], lines: Lines, datasets: Datasets
    ) -> None:
        """Prepare to read `file`; see `load_manifest`."""
        super().__init__(file, lines, datasets)
        self._trainers = dict(trainers)

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
            self._problem("", "schema_version", f"is {version!r}; write schema_version = 1")
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
        names: dict[str, int] = {}
        read = [self.entry(table, index, defaults, names) for index, table in enumerate(tables)]
        specs, faults = linking.linked(
            read, names, lambda index: f"{_label(tables[index], index)} ({self._line(index)})"
        )
        for index, key, message in faults:
            self._place = ("jobs", index)
            self._problem(_label(tables[index], index), key, message)
        return specs

    def entry(
        self, table: dict[str, Any], index: int, defaults: Defaults, names: dict[str, int]
    ) -> JobSpec:
        """Return the job of one table; `names` came before.

        It has no `job_id` if it is broken; its `after` and `inputs` have names, see `linking`.
        """
        label = _label(table, index)
        self._place = ("jobs", index)
        table = self._with_program(table, label)
        own, table = table, defaults.of_job(table)
        job = self._table(JobTable, table, label, is_job=True)
        if job is None:
            spec, is_named = self._check_broken(table, own, label)
            if is_named:
                self._unique(names, spec.name, index, label)
            return replace(spec, job_id="", name=label)
        given, job.hyper = job.hyper, self._check_model(job.model, job.hyper, label)
        job = self._for_trainer(job, own, label)
        spec = self._spec(job, label)
        if job.name is not None or not self._lacks_mode(job):
            self._unique(names, spec.name, index, label)
        is_whole = len(job.hyper) == len(given) and not self._lacks_mode(job)
        return spec if is_whole else replace(spec, job_id="")

    def _with_program(self, table: dict[str, Any], label: str) -> dict[str, Any]:
        """Return the table with its program, if it names one, in the place of the model."""
        text = table.get("program")
        self._written = {} if text is None else {"hyper": "parameters"}
        for key, message in program_keys.misplaced(table):
            self._problem(label, key, message)
        if not isinstance(text, str):
            return table
        titles = None if self._datasets is None else self._trainers
        model, message = program_keys.meant_title(text, titles, "no_program")
        if message:
            self._problem(label, "program", message)
        elif titles is None:
            self._trainers.setdefault(text, program_keys.ANY_PROGRAM)
        return program_keys.with_program(table, model)

    def _hyper_key(self) -> str:
        return self._written.get("hyper", "hyper")

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

    def _spec(self, job: JobTable, label: str) -> JobSpec:
        lists = {"allowed_hosts": job.allowed_hosts, "denied_hosts": job.denied_hosts}
        self._check_lists(label, "", lists, "let [hosts.NAME] say allow_jobs or deny_jobs")
        for key in ("allowed_hosts", "denied_hosts"):
            for host in getattr(job, key):
                if not is_host(host):
                    self._problem(label, key, f"{host!r} cannot be a host: {_HOST_RULE}")
        for host in sorted({*job.allowed_hosts} & {*job.denied_hosts}):
            self._problem(label, "denied_hosts", f"{host!r} is in allowed_hosts as well")
        trainer = self._trainers.get(job.model)
        for key, message in linking.of_job(job, trainer):
            self._problem(label, key, message)
        train_hosts = tuple(sorted({*job.train_hosts}))
        for host in train_hosts:
            if not host or host.startswith("-"):
                rule = "no empty name, no leading '-'"
                self._problem(label, "train_hosts", f"{host!r} cannot be a host: {rule}")
        carried_bytes = len(to_json([job.hyper, train_hosts]))
        if carried_bytes > MAX_CARRIED_BYTES:
            message = (
                f"with train_hosts it takes {carried_bytes // 1024} KiB, and an assignment carries "
                f"{MAX_CARRIED_BYTES // 1024}; put long lists into a file of the trainer's"
            )
            self._problem(label, self._hyper_key(), message)
        mode, is_folds = job.mode or "", job.split_recipe == "folds"
        folds, fold = (job.folds, job.fold or 0) if is_folds else (0, 0)
        if fold > folds:
            self._problem(label, "fold", f"must be at most {folds}, which is folds, not {fold}")
        model = job.model.partition("@")[0]
        other: dict[str, Any] = {  # than in the table
            "job_id": "",
            "model": model,
            "program": trainer.program if trainer is not None else None,
            "version": (trainer and trainer.version) or "",
            "name": "-".join(filter(None, (model, mode))) if job.name is None else job.name,
            "mode": mode,
            "train_hosts": train_hosts,
            "folds": folds,
            "fold": fold,
            "needs": needs_of(job, Needs() if trainer is None else trainer.needs),
            "allowed_hosts": tuple(job.allowed_hosts),
            "denied_hosts": tuple(job.denied_hosts),
            "timeout_s": job.timeout_s or None,
            "stall_timeout_s": job.stall_timeout_s or None,
            "data": self._data(job.data, model, trainer, label),
            "inputs": job.inputs,
            "after": tuple(job.after),
        }
        same = (name for name in JobSpec.__slots__ if name not in other)
        spec = JobSpec(**other, **{name: getattr(job, name) for name in same})
        return replace(spec, job_id=id_of(spec))

    def _check_broken(
        self, table: Mapping[str, Any], own: Mapping[str, Any], label: str
    ) -> tuple[JobSpec, bool]:
        """Check the rest of a faulty job; return what is left, and whether its name is known."""
        faulty = self._faulty
        rest = {key: value for key, value in table.items() if key not in faulty}
        hyper = table.get("hyper")
        usable = self._check_model(
            rest.get("model"), hyper if isinstance(hyper, dict) else {}, label
        )
        rest |= {} if "hyper" in faulty else {"hyper": usable}
        job = self._for_trainer(JobTable.model_validate({"model": ""} | rest), own, label)
        is_named = "name" in rest or not (faulty & {"name", "model"} or self._lacks_mode(job))
        return self._spec(job, label), is_named

    def _for_trainer(self, job: JobTable, own: Mapping[str, Any], label: str) -> JobTable:
        """Return the job as its trainer is told of it, which may read no prepared data.

        `own` is the job's table without what [defaults] say, which hold for those that do.
        """
        trainer = self._likely(job.model)
        if trainer is None:
            return job
        if trainer.version is None and job.model in self._trainers:
            message = (
                f"the version of {job.model} is not known: no host that has it has come, and its "
                "files are not here; reload when one has come"
            )
            self._problem(label, "model", message)
        if trainer.telemetry:
            if "mode" not in own:
                message = 'missing; write mode = "oracle", or "realistic"'
                self._problem(label, "mode", message)
            told = () if job.split_recipe == "folds" else ("fold", "folds")
            for key in filter(own.__contains__, told):
                self._problem(label, key, 'counts with split_recipe = "folds" alone; write that')
            return job
        for key in OF_TELEMETRY:
            if key in own:
                message = f"{job.model.partition('@')[0]} reads no prepared data; leave this out"
                if trainer.program is None:
                    section = f"[trainers.{job.model}] of its hosts"
                    message += f", or let the {section} say telemetry = true"
                self._problem(label, key, message)
        usual = {key: JobTable.model_fields[key].default for key in OF_TELEMETRY}
        return job.model_copy(update=usual)

    def _likely(self, model: str) -> TrainerInfo | None:
        """Return the trainer of a model, or of the one that may be meant."""
        likely = model if model in self._trainers else meant(model, self._trainers)
        return None if likely is None else self._trainers[likely]

    def _lacks_mode(self, job: JobTable) -> bool:
        trainer = self._likely(job.model)
        return job.mode is None and (trainer is None or trainer.telemetry)

    def _check_model(self, model: str | None, hyper: dict[str, Any], label: str) -> dict[str, Any]:
        """Return the hyperparameters that an id can be made of; say what is wrong with others."""
        likely = model
        hyper_key = self._hyper_key()
        if model is not None and self._written and model not in self._trainers:
            likely = None  # it is said of the program
        elif model is not None and model not in self._trainers:
            models = [one for one in self._trainers if "@" not in one]
            likely = meant(model, models)
            known = did_you_mean(model, models)
            more = " (one of your own is known once a host that has it has come)"
            self._problem(label, "model", f"unknown model {model!r}{known}{more}")
        elif model is not None and not is_plain(model):
            message = f"{model!r} cannot be the name of a folder on Windows, where results may go"
            self._problem(label, "model", f"{message}; give the trainer another name")
        schema = {} if likely is None else self._trainers[likely].hyper_schema
        faulty = set()
        for key, message in check_hyper(hyper, schema, (likely or "").partition("@")[0]):
            faulty.add(key)
            self._problem(label, f"{hyper_key}.{key}", message)
        usable = {key: value for key, value in hyper.items() if is_json(value)}
        for key in sorted(hyper.keys() - usable.keys() - faulty):
            message = (
                "must be finite numbers, strings, booleans, lists or tables of them, at most "
                f"{MAX_DEPTH} deep: no dates"
            )
            self._problem(label, f"{hyper_key}.{key}", message)
        return usable


_HOST_RULE: Final = "a-z, 0-9, '.', '_', '-', starting with a letter or digit, not with 'fleet-'"


def _label(table: Mapping[str, Any], index: int) -> str:
    name = table.get("name")
    if name is None and "model" in table:
        name = "-".join(str(table[key]) for key in ("model", "mode") if key in table)
    elif name is None and "program" in table:
        name = str(table["program"]).partition("@")[0]
    # What is no name may hold anything, control characters too: it is not repeated.
    return name if isinstance(name, str) and _NAME.fullmatch(name) else f"job {index + 1}"
