"""`fleet check`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker.machine import new_id
from coordinator.cli import EXIT_REFUSED, NotDone, Unreachable
from coordinator.cli.common import json_option, where_options

if TYPE_CHECKING:
    from coordinator.manifest import ManifestError

ASK_TIMEOUT_S = 1.0


@click.command("check")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--offline", is_flag=True, help="Do not ask a coordinator which trainers there are.")
@json_option
@where_options
def check_command(
    manifest: Path,
    offline: bool,
    as_json: bool,
    **at: Any,
) -> int:
    """Check a manifest and print every error in it.

    Needs no coordinator; where one answers, the trainers that its hosts announce are known too.

    Example: fleet check training_manifest.toml
    """
    from coordinator.builtin import builtin_trainers
    from coordinator.manifest import ManifestError, load_manifest

    trainers: Mapping[str, Any] = builtin_trainers()
    if not offline:
        trainers = {**trainers, **_known(at)}
    try:
        plan = load_manifest(manifest, trainers)
    except ManifestError as error:
        errors = problems_to_list(error)
        _say(as_json, {"ok": False, "jobs": 0, "errors": errors}, str(error))
        return EXIT_REFUSED
    count = len(plan.jobs)
    text = f"{manifest}: {count} job{'s' * (count != 1)}, no errors"
    _say(as_json, {"ok": True, "jobs": len(plan.jobs), "errors": []}, text)
    return 0


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
        click.echo(text, err=not data["ok"])


def _known(at: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a coordinator, if there is one, which trainers it knows."""
    from broker.messages import AskTrainers
    from coordinator.cli.common import connect, where

    try:
        with connect(where(**at), ASK_TIMEOUT_S) as client:
            found: dict[str, Any] = client.ask(AskTrainers(id=new_id()))["trainers"]
            return found
    except (NotDone, Unreachable):
        return {}
