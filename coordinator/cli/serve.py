"""`fleet broker`, `fleet coordinator`, `fleet agent`: become the program of that name.

The command line imports neither the broker nor the agent: each is a program of its own, and this
process turns into it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from broker.errors import LocalError
from coordinator.cli.broker_config import config_command
from coordinator.ui.options import PATH, flag, json_option, option, where_options

F = TypeVar("F", bound=Callable[..., Any])


@click.group("broker", invoke_without_command=True)
@option("--listen", "HOST:PORT", "Where to listen.  [default: 127.0.0.1:1883]")
@option("--identity", "DIR",
        "Folder of ca.crt, broker.crt, broker.key: serve a network, TLS.", type=PATH)  # fmt: skip
@option("--websocket", "PORT", "Serve websockets as well, behind the same rights.",
        type=click.IntRange(0, 65_535))  # fmt: skip
@option("--origin", "URL",
        "A page whose scripts may open a websocket. May be repeated.", multiple=True)  # fmt: skip
@option("--config", "FILE", "Configuration file.")
@option("--root", "ROOT", "Topic root.")
@click.pass_context
def broker_command(ctx: click.Context, /, **options: Any) -> int:
    """Run the embedded broker.

    Without an identity it serves this machine alone. With one it serves a network: every client
    shows a certificate of the fleet's, and may do what its name may do.

    \b
    Example:
      fleet broker --listen 0.0.0.0:8883 --identity ~/.config/fleet/broker
    """  # noqa: D301 - \b is click's
    if ctx.invoked_subcommand is not None:
        return 0
    given = ctx.obj or {}
    for name in ("config", "root"):
        options[name] = options[name] or given.get(name)
    origins = [part for origin in options.pop("origin") for part in ("--origin", origin)]
    return become_module("broker.embedded", options, origins)


broker_command.add_command(config_command)


@click.command("coordinator")
@option("--state", "DIR", "Folder of the ledger and the artifact store.")
@option("--manifest", "FILE", "The plan.")
@option("--ca", "DIR", "Folder of the CA, to renew hosts' certificates.")
@option("--prefer-cuda-grace", "SECONDS", "Overrides the plan's.", type=float)
@flag("--accept-ledger", "Go on with a ledger that has lost jobs, without them.")
@where_options
def coordinator_command(**options: Any) -> int:
    """Run the coordinator.

    \b
    Examples:
      fleet coordinator --manifest plan.toml
      fleet coordinator --manifest plan.toml --ca ~/.config/fleet/ca
    """  # noqa: D301 - \b is click's
    flags = ["--accept-ledger"] if options.pop("accept_ledger") else []
    return become_module("coordinator.service", options, flags)


@click.command("agent")
@option("--state", "DIR", "Folder of the spool and the work folders.")
@option("--data", "DIR", "Folder of the prepared data.")
@option("--host", "NAME", "This host's name in the fleet.")
@option("--heartbeat", "SECONDS", "Time between heartbeats.", type=float)
@option("--slots", "N", "Jobs at once.", type=int)
@option("--threads", "N", "Threads of a trainer.", type=int)
@where_options
def agent_command(**options: Any) -> int:
    """Run this host's agent.

    After `fleet join` it knows its name and its broker.

    \b
    Examples:
      fleet agent --data /srv/telemetry
      fleet agent --broker mqtts://pi.lan --data /srv/telemetry --slots 2
    """  # noqa: D301 - \b is click's
    return become_module("agent.service", options)


def become_module(module: str, options: dict[str, Any], flags: Sequence[str] = ()) -> int:
    """Turn into a program of the package. Raises `LocalError` when it is not installed."""
    from coordinator.ui.processes import become

    check_installed(module)
    return become(module, [*flags, *arguments_of(options)])


def check_installed(module: str) -> None:
    """Raise `LocalError` when a program of the package is not installed here."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None  # not even the package that it would be in
    if found is None:
        raise LocalError(f"{module} is not installed here; install the whole package")


def arguments_of(options: dict[str, Any]) -> list[str]:
    """Return those options that were said as a program takes them."""
    arguments = []
    for name, value in options.items():
        if value is True:
            arguments.append(f"--{name.replace('_', '-')}")
        elif value is not None:
            text = str(value.resolve()) if isinstance(value, Path) else str(value)
            # In one word, so that no value is taken for an option.
            arguments.append(f"--{name.replace('_', '-')}={text}")
    return arguments


def _folder_options(function: F) -> F:
    config = click.option("--config", metavar="FILE", help="Configuration file.")
    state = click.option("--state", metavar="DIR", help="The coordinator's state folder.")
    return state(config(function))


@click.command("backup")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@json_option
@_folder_options
@click.pass_context
def backup_command(ctx: click.Context, /, file: Path, **options: Any) -> int:
    """Copy the ledger to FILE, check the copy, and say what is in it.

    Runs on the coordinator's machine, while the coordinator runs or not. FILE must not exist.
    Artifacts are not in it: they never change once they are there, so copy `models/` after it.

    Example: fleet backup /backup/ledger-$(date +%F).db
    """
    return _care(ctx, "backup", [str(file.absolute())], options)


@click.command("fsck")
@flag("--repair", "Repair what is safe; the coordinator must not run.")
@json_option
@_folder_options
@click.pass_context
def fsck_command(ctx: click.Context, /, *, repair: bool, **options: Any) -> int:
    """Compare ledger, history, artifacts, index and part files; read every artifact.

    Runs on the coordinator's machine. Each finding is a line that says what --repair would do about
    it. No job's state is ever changed. Exit code 0: nothing is left to be done, 1: something is.

    Example: fleet fsck --repair
    """
    return _care(ctx, "fsck", ["--repair"] if repair else [], options)


def _care(ctx: click.Context, verb: str, flags: Sequence[str], options: dict[str, Any]) -> int:
    """Become the program that takes care of the state folder."""
    options["json"] = options.pop("as_json") or None
    options["config"] = options["config"] or (ctx.obj or {}).get("config")
    return become_module("coordinator.admin", options, [verb, *flags])
