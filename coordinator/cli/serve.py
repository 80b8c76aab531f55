"""`fleet broker`, `fleet coordinator`, `fleet agent`: become the program of that name.

The command line imports neither the broker nor the agent: each is a program of its own, and this
process turns into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from coordinator.cli.broker_config import config_command
from coordinator.ui.options import PATH, Where, flag, option, where, where_options


@click.group("broker", invoke_without_command=True)
@option("--listen", "HOST:PORT", "Where to listen.  [default: 127.0.0.1:1883]")
@option("--identity", "DIR",
        "Folder of ca.crt, broker.crt, broker.key: serve a network, TLS.", type=PATH)  # fmt: skip
@option("--websocket", "PORT", "Serve websockets as well, behind the same rights.",
        type=click.IntRange(0, 65_535))  # fmt: skip
@option("--origin", "URL",
        "A page whose scripts may open a websocket. May be repeated.", multiple=True)  # fmt: skip
@where("config", "root")
@click.pass_context
def broker_command(ctx: click.Context, /, at: Where, **options: Any) -> int:
    """Run the embedded broker.

    Without an identity it serves this machine alone. With one it serves a network: every client
    shows a certificate of the fleet's, and may do what its name may do.

    \b
    Example:
      fleet broker --listen 0.0.0.0:8883 --identity ~/.config/fleet/broker
    """  # noqa: D301 - \b is click's
    if ctx.invoked_subcommand is not None:
        return 0
    options |= {"config": at.config, "root": at.root}
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
def coordinator_command(at: Where, **options: Any) -> int:
    """Run the coordinator.

    \b
    Examples:
      fleet coordinator --manifest plan.toml
      fleet coordinator --manifest plan.toml --ca ~/.config/fleet/ca
    """  # noqa: D301 - \b is click's
    flags = ["--accept-ledger"] if options.pop("accept_ledger") else []
    return become_module("coordinator.service", options | at.said(), flags)


@click.command("agent")
@option("--state", "DIR", "Folder of the spool and the work folders.")
@option("--data", "DIR", "Folder of the prepared data.")
@option("--host", "NAME", "This host's name in the fleet.")
@option("--heartbeat", "SECONDS", "Time between heartbeats.", type=float)
@option("--slots", "N", "Jobs at once.", type=int)
@option("--threads", "N", "Threads of a trainer.", type=int)
@where_options
def agent_command(at: Where, **options: Any) -> int:
    """Run this host's agent.

    After `fleet join` it knows its name and its broker.

    \b
    Examples:
      fleet agent --data /srv/telemetry
      fleet agent --broker mqtts://pi.lan --data /srv/telemetry --slots 2
    """  # noqa: D301 - \b is click's
    return become_module("agent.service", options | at.said())


def become_module(module: str, options: dict[str, Any], flags: Sequence[str] = ()) -> int:
    """Turn into a program of the package."""
    from coordinator.ui.processes import become

    return become(module, [*flags, *arguments_of(options)])


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
