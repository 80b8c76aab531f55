"""`fleet revoke`."""

from __future__ import annotations

from pathlib import Path

import click

from broker import identity as ids
from broker.acl import Principal, Role
from broker.machine import system_clock
from coordinator.cli import NotDone, printable
from coordinator.cli.certificates import home_of, home_option, publish
from coordinator.cli.journal import note, tell


@click.command("revoke")
@click.argument("name", metavar="NAME")
@home_option
@click.option("--broker", metavar="URL", help="Where the coordinator is told of it.")
@click.option("--config", metavar="FILE", help="Configuration file.")
@click.pass_context
def revoke_command(
    ctx: click.Context, name: str, home: Path | None, broker: str | None, config: str | None
) -> None:  # fmt: skip
    """Take a certificate back, on the machine that has the CA.

    The coordinator gives a host nothing more then, and what the host holds to others.

    Example: fleet revoke gaming-pc
    """
    from broker.ca import BROKER_NAME, Authority, describe

    home = home_of(home)
    authority = Authority(home / "ca")
    ids.folder_name(name)
    ended = authority.revoke(name, system_clock().wall_s)
    publish(authority, home)
    given = ctx.obj or {}
    url, file = broker or given.get("broker"), config or given.get("config")
    entry = note(authority, home, "revoke", name) if ended else ""
    told = tell(authority, home, url, Path(file) if file else None)
    if not ended:
        issued = [one for one in authority.issued() if one.name != BROKER_NAME]
        known = sorted({one.name for one in issued if one.revoked_s is None})
        raise NotDone(f"{name} has no certificate that holds; there are: {', '.join(known)}")
    for one in ended:
        click.echo(f"revoked {name} ({describe(one)})")
    if entry in told and Principal.parse(name).role is Role.AGENT:
        jobs = ", ".join(map(printable, told[entry]["jobs"]))
        what = f"its jobs are in the queue again: {jobs}" if jobs else "it held no job"
        click.echo(f"the coordinator gives it nothing more; {what}")
    elif Principal.parse(name).role is Role.AGENT:
        click.echo(
            "the jobs that it holds go to other hosts once the coordinator has heard of this, or "
            "within some minutes\n([coordinator] crash_grace_s, stale_after_s)"
        )
    crl = home / "broker" / "crl.pem"
    click.echo(
        f"the broker's list is {crl}\n"
        "  fleet broker: takes it within a second, and ends the host's connection\n"
        "  mosquitto:    copy it to its crlfile; SIGHUP lets nobody in with it any more,\n"
        "                and a restart ends a connection that is there"
    )
