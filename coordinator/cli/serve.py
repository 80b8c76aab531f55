"""`fleet broker`, `fleet coordinator`, `fleet agent`: become the program of that name.

The command line imports neither the broker nor the agent: each is a program of its own, and this
process turns into it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import click

from broker.errors import LocalError
from coordinator.cli.brokerfiles import config_command
from coordinator.cli.common import where_options


@click.group("broker", invoke_without_command=True)
@click.option("--listen", metavar="HOST:PORT", help="Loopback only.  [default: 127.0.0.1:1883]")
@click.pass_context
def broker_command(ctx: click.Context, listen: str | None) -> int:
    """Run the embedded broker, for a fleet on this machine.

    Example: fleet broker --listen 127.0.0.1:1884
    """
    if ctx.invoked_subcommand is not None:
        return 0
    return _become("broker.server", {"listen": listen})


broker_command.add_command(config_command)


@click.command("coordinator")
@click.option("--state", metavar="DIR", help="Folder of the ledger and the artifact store.")
@click.option("--manifest", metavar="FILE", help="The plan.")
@click.option("--prefer-cuda-grace", metavar="SECONDS", type=float, help="Overrides the plan's.")
@where_options
def coordinator_command(**options: Any) -> int:
    """Run the coordinator.

    Example: fleet coordinator --manifest plan.toml --broker mqtt://192.0.2.7:1883
    """
    return _become("coordinator.service", options)


@click.command("agent")
@click.option("--state", metavar="DIR", help="Folder of the spool and the work folders.")
@click.option("--data", metavar="DIR", help="Folder of the prepared data.")
@click.option("--host", metavar="NAME", help="This host's name in the fleet.")
@click.option("--heartbeat", metavar="SECONDS", type=float, help="Time between heartbeats.")
@click.option("--slots", metavar="N", type=int, help="Jobs at once.")
@click.option("--threads", metavar="N", type=int, help="Threads of a trainer.")
@where_options
def agent_command(**options: Any) -> int:
    """Run this host's agent.

    Example: fleet agent --broker mqtt://192.0.2.7:1883 --data /srv/telemetry
    """
    return _become("agent.service", options)


def _become(module: str, options: dict[str, Any]) -> int:
    from coordinator.cli.processes import become

    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None  # not even the package that it would be in
    if found is None:
        raise LocalError(f"{module} is not installed here; install the whole package")
    arguments: list[str] = []
    for name, value in options.items():
        if value is not None:
            text = str(value.resolve()) if isinstance(value, Path) else str(value)
            arguments += [f"--{name.replace('_', '-')}", text]
    return become(module, arguments)
