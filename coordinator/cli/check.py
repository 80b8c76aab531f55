"""`fleet check`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker.machine import new_id
from coordinator.cli import EXIT_REFUSED, NotDone, Unreachable, printable
from coordinator.cli.common import json_option, where_options
from coordinator.cli.words import say

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient
    from coordinator.manifest import ManifestError
    from coordinator.plan import Plan

ASK_TIMEOUT_S = 1.0
HOSTS_TIMEOUT_S = 2.0  # for all of them, of a large fleet


@click.command("check")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "--offline", is_flag=True, help="Do not ask a coordinator which trainers and hosts there are."
)
@json_option
@where_options
def check_command(
    manifest: Path,
    offline: bool,
    as_json: bool,
    **at: Any,
) -> int:
    """Check a manifest and print every error in it.

    Needs no coordinator. Where one answers, the trainers that its hosts announce are known too, and
    names of hosts that it does not know are warned of.

    Example: fleet check training_manifest.toml
    """
    from coordinator.builtin import builtin_trainers
    from coordinator.manifest import ManifestError, load_manifest

    trainers, hosts = ({}, None) if offline else _known(at)
    try:
        plan = load_manifest(manifest, {**builtin_trainers(), **trainers})
    except ManifestError as error:
        errors = problems_to_list(error)
        _say(as_json, {"ok": False, "jobs": 0, "errors": errors}, str(error))
        return EXIT_REFUSED
    count = len(plan.jobs)
    text = f"{manifest}: {count} job{'s' * (count != 1)}, no errors"
    warnings = _warnings(plan, hosts)
    if warnings is None:
        why = "--offline" if offline else "no coordinator answered"
        text += f"\nnames of hosts were not checked: {why}"
    data = {"ok": True, "jobs": len(plan.jobs), "errors": [], "warnings": warnings}
    _say(as_json, data, text)
    for warning in warnings or () if not as_json else ():
        say(f"warning: {printable(warning)}", err=True)
    return 0


def _warnings(plan: Plan, hosts: set[str] | None) -> list[str] | None:
    """Return a warning for each host that nobody knows; none when that cannot be told."""
    from coordinator.hostnames import of_plan

    if hosts is None:
        names = [*plan.hosts, *(name for job in plan.jobs for name in job.named_hosts())]
        return None if names else []
    return of_plan(plan, hosts)


def problems_to_list(error: ManifestError) -> list[dict[str, Any]]:
    """Return the errors of a manifest as JSON values."""
    return [
        {"file": p.file, "line": p.line, "job": p.job, "key": p.key, "message": p.message}
        for p in error.problems
    ]


def _say(as_json: bool, data: dict[str, Any], text: str) -> None:
    if as_json:
        from coordinator.cli import render

        render.print_json(data)
    else:
        say(text, err=not data["ok"], indent=2)


def _known(at: Mapping[str, Any]) -> tuple[dict[str, Any], set[str] | None]:
    """Ask a coordinator, if there is one, which trainers and hosts it knows."""
    from broker.messages import AskTrainers
    from coordinator.cli.common import connect, where

    try:
        with connect(where(**at), ASK_TIMEOUT_S) as client:
            found: dict[str, Any] = client.ask(AskTrainers(id=new_id()))["trainers"]
            return found, _hosts(client)
    except (NotDone, Unreachable):
        return {}, None


def _hosts(client: OperatorClient) -> set[str] | None:
    """Return the names of the hosts; none when that takes too long."""
    from broker.messages import AskWorkers

    deadline_s = time.monotonic() + HOSTS_TIMEOUT_S
    names: set[str] = set()
    following: int | None = 0
    try:
        while following is not None:
            if time.monotonic() > deadline_s:
                return None
            page = client.ask(AskWorkers(id=new_id(), offset=following, limit=500, brief=True))
            names.update(row["host"] for row in page["workers"])
            following = page["next"]
    except (NotDone, Unreachable):
        return None
    return names
