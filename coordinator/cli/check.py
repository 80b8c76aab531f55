"""`fleet check`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from broker.errors import ConfigError
from broker.figures import counted
from broker.system.machine import new_id
from broker.wrapping import HANG, printable
from coordinator.client.contact import NotDone, Unreachable
from coordinator.jobs.causes import Cause, in_words
from coordinator.jobs.host_paging import known_names
from coordinator.manifest.data_keys import Catalogue
from coordinator.ui import EXIT_REFUSED
from coordinator.ui.live import POLL_S, View, show_once, watch_option, watching
from coordinator.ui.options import OperatorClient, Where, flag, json_option, where_options
from coordinator.ui.terminal import Line, paragraph

if TYPE_CHECKING:
    from coordinator.jobs.plan_entries import Plan

ASK_TIMEOUT_S: Final = 1.0
HOSTS_TIMEOUT_S: Final = 2.0  # for all of them, of a large fleet
_NOBODY: Final = Catalogue({}, None)
_WHY: Final = {
    "offline": "--offline",
    "no_coordinator": "no coordinator answered",
    "no_hosts": "no host is known",
}


@click.command("check")
@click.argument("manifest", type=click.Path(path_type=Path))
@flag("--offline", "Do not ask a coordinator which trainers and hosts there are.")
@watch_option
@json_option
@where_options
def check_command(at: Where, manifest: Path, offline: bool, watch: bool) -> int:
    """Check a manifest and print every error in it.

    Needs no coordinator. Known are the trainers that are built in, and those in the [trainers] of
    the configuration file. Where a coordinator answers, so are those that its hosts announce, the
    programs and the datasets; names of hosts that it does not know are warned of. Without one it is
    said that these were not checked. With --watch it is checked while it is written.

    \b
    Examples:
      fleet check training_manifest.toml
      fleet check training_manifest.toml --watch
    """  # noqa: D301 - \b is click's
    view = View(
        partial(_judge, manifest, at, offline=offline), partial(_draw, manifest),
        lambda found: 0 if found["ok"] else EXIT_REFUSED, complain=_complaints,
    )  # fmt: skip
    return watching(view, lambda: time.sleep(POLL_S)) if watch else show_once(view)


def _judge(manifest: Path, at: Where, *, offline: bool) -> dict[str, Any]:
    """Return as JSON values what is to be said of a manifest, and of the file's own trainers."""
    from broker.protocol.messages import TrainerInfo
    from broker.system.trainer_settings import read_trainers
    from coordinator.manifest.builtin import builtin_trainers
    from coordinator.manifest.manifest_file import load_manifest
    from coordinator.manifest.problems import ManifestError, Problem

    built_in = builtin_trainers()
    known, hosts, why = (_NOBODY, None, "offline") if offline else _ask(at)
    own, faults = read_trainers(at.config, built_in, programs=False)
    nothing = TrainerInfo(hyper_schema={})
    ours = {name: trainer.info() if trainer else nothing for name, trainer in own.items()}
    problems = [Problem(str(fault.file), "", fault.key, fault.message) for fault in faults]
    plan: Plan | None
    try:
        plan = load_manifest(manifest, {**ours, **built_in, **known.trainers}, known.datasets)
    except ManifestError as error:
        plan = error.readable
        problems += error.problems
    warnings = None if plan is None else doubts(plan, hosts)
    found: dict[str, Any] = {
        "ok": not problems,
        "name": plan.name if plan and not problems else "",
        "jobs": len(plan.jobs) if plan and not problems else 0,
        "errors": [asdict(one) for one in problems],
        "warnings": warnings,
    }
    untold = plan.jobs if plan is not None and known.datasets is None else ()
    names = ["hosts"] * (warnings is None)
    if names := names + ["programs", "datasets"] * any(job.program or job.data for job in untold):
        found["unchecked"] = {"names": names, "why": why}
    return found | ({"message": "\n".join(map(str, problems))} if problems else {})


def _draw(manifest: Path, found: dict[str, Any]) -> Iterator[Line]:
    if found["ok"]:
        name = f' of "{printable(found["name"])}"' if found["name"] else ""
        yield paragraph(f"{manifest}: {counted(found['jobs'], 'job')}{name}, no errors", hang=HANG)
        if left := found.get("unchecked"):
            names = " and ".join(left["names"])
            yield paragraph(f"names of {names} were not checked: {_WHY[left['why']]}", hang=HANG)


def _complaints(found: dict[str, Any]) -> list[str]:
    warnings = [f"warning: {in_words(why)}" for why in found["warnings"] or ()]
    return warnings if found["ok"] else [found["message"], *warnings]


def doubts(plan: Plan, hosts: set[str] | None) -> list[Cause] | None:
    """Return a warning for each host that nobody knows; none when that cannot be told."""
    from coordinator.scheduler.unknown_hosts import of_plan

    if not hosts:
        names = [*plan.hosts, *(name for job in plan.jobs for name in job.named_hosts())]
        return None if names else []
    return of_plan(plan, hosts)


def _ask(at: Where) -> tuple[Catalogue, set[str] | None, str]:
    """Return what a coordinator knows, and a code of why something of it is unknown."""
    asks = at.connect(timeout_s=ASK_TIMEOUT_S)  # what is wrong with the settings is an error
    try:
        with asks as client:
            known, hosts = known_to(client), known_hosts(client)
            return known, hosts, "no_coordinator" if hosts is None else "no_hosts"
    except (ConfigError, NotDone, Unreachable):  # the first on a host's machine: it may not ask
        return _NOBODY, None, "no_coordinator"


def known_to(client: OperatorClient) -> Catalogue:
    """Return what the coordinator knows that a manifest may name."""
    from broker.protocol.messages import AskTrainers, Dataset, TrainerInfo

    told = client.ask(AskTrainers(id=new_id()))
    return Catalogue(
        {model: TrainerInfo.model_validate(one) for model, one in told["trainers"].items()},
        {title: Dataset.model_validate(one) for title, one in told["datasets"].items()},
    )


def known_hosts(client: OperatorClient) -> set[str] | None:
    """Return the names of the hosts; none when that takes too long."""
    deadline_s = time.monotonic() + HOSTS_TIMEOUT_S
    names: set[str] = set()
    try:
        for page in client.host_pages(absent=True, brief=True):
            names |= known_names(page)
            if time.monotonic() > deadline_s and page["next"] is not None:
                return None
    except (NotDone, Unreachable):
        return None
    return names
