"""`fleet revoke`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import click

from broker import identity as ids
from broker.acl import Principal, Role
from broker.errors import FleetError
from broker.machine import system_clock
from broker.settings import BrokerSettings
from coordinator.cli import NotDone
from coordinator.cli.certificates import home_of, home_option, publish
from coordinator.cli.common import connect

ASK_S: Final = 1.0


@click.command("revoke")
@click.argument("name", metavar="NAME")
@home_option
def revoke_command(name: str, home: Path | None) -> None:
    """Take a certificate back, on the machine that has the CA.

    Whoever shows it is no longer let in. The jobs that a host holds go to others.

    Example: fleet revoke gaming-pc
    """
    from broker.ca import BROKER_NAME, Authority, describe

    home = home_of(home)
    authority = Authority(home / "ca")
    ids.folder_name(name)
    ended = authority.revoke(name, system_clock().wall_s)
    publish(authority, home)
    if not ended:
        issued = [one for one in authority.issued() if one.name != BROKER_NAME]
        known = sorted({one.name for one in issued if one.revoked_s is None})
        raise NotDone(f"{name} has no certificate that holds; there are: {', '.join(known)}")
    for one in ended:
        click.echo(f"revoked {name} ({describe(one)})")
    if Principal.parse(name).role is Role.AGENT:
        held = _held_by(name)
        click.echo(
            f"the jobs that it holds{f' ({held})' if held else ''} go to other hosts within some "
            "minutes\n([coordinator] crash_grace_s, stale_after_s); at once: `fleet requeue JOB`"
        )
    crl = home / "broker" / "crl.pem"
    click.echo(
        f"the broker's list is {crl}\n"
        "  fleet broker: takes it within a second, and ends the host's connection\n"
        "  mosquitto:    copy it to its crlfile; SIGHUP lets nobody in with it any more,\n"
        "                and a restart ends a connection that is there"
    )


def _held_by(host: str) -> str:
    """Name what a host holds, where a coordinator can be asked from here."""
    with contextlib.suppress(FleetError, OSError), connect(BrokerSettings.load(), ASK_S) as client:
        rows = client.list_jobs(("claimed", "running"))
        return ", ".join(row["name"] for row in rows if row["host"] == host)
    return ""
