"""`fleet revoke`."""

from __future__ import annotations

from pathlib import Path

import click

from broker import identity as ids
from broker.machine import system_clock
from coordinator.cli import NotDone
from coordinator.cli.certificates import home_of, home_option, publish


@click.command("revoke")
@click.argument("name", metavar="NAME")
@home_option
def revoke_command(name: str, home: Path | None) -> None:
    """Take a certificate back, on the machine that has the CA.

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
    crl = home / "broker" / "crl.pem"
    click.echo(
        f"the broker's list is {crl}\n"
        "  fleet broker: takes it within a second, and ends the host's connection\n"
        "  mosquitto:    copy it to its crlfile; SIGHUP lets nobody in with it any more,\n"
        "                and a restart ends a connection that is there"
    )
