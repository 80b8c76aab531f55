"""`fleet revoke`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker import identity as ids
from broker.acl import Principal, Role
from broker.address import Address, parse_addresses, text_of
from broker.errors import ConfigError
from broker.machine import system_clock
from broker.settings import BrokerSettings
from coordinator.cli import NotDone, printable
from coordinator.cli.certificates import broker_url, home_of, home_option, publish
from coordinator.cli.journal import note, tell

if TYPE_CHECKING:
    from broker.ca import Authority


@click.command("revoke")
@click.argument("name", metavar="NAME")
@home_option
@click.option("--broker", metavar="URL", help="Where the broker is, and the coordinator.")
@click.option("--config", metavar="FILE", help="Configuration file.")
@click.pass_context
def revoke_command(
    ctx: click.Context, name: str, home: Path | None, broker: str | None, config: str | None
) -> None:  # fmt: skip
    """Take a certificate back, on the machine that has the CA.

    The coordinator gives a host nothing more then, and what the host holds to others. Ends the
    connection that a host has, by taking its place for some seconds, and tells whether the broker
    lets it in still. `fleet broker` takes the new list of the revoked by itself; give it to another
    broker (docs/identity.md), and run this again.

    Example: fleet revoke gaming-pc
    """
    from broker.ca import Authority, describe

    home = home_of(home)
    authority = Authority(home / "ca")
    ids.folder_name(name)
    given = ctx.obj or {}
    url, file = broker or given.get("broker"), config or given.get("config")
    addresses = _addresses(home, url, file)
    ended = authority.revoke(name, system_clock().wall_s)
    publish(authority, home)
    entry = note(authority, home, "revoke", name) if ended else ""
    told = tell(authority, home, url, Path(file) if file else None)
    if not ended:
        _check_known(authority, name)
        click.echo(f"{name} is revoked already")
    for one in ended:
        click.echo(f"revoked {name} ({describe(one)})")
    if entry in told and Principal.parse(name).role is Role.AGENT:
        jobs = ", ".join(map(printable, told[entry]["jobs"]))
        what = f"its jobs are in the queue again: {jobs}" if jobs else "it held no job"
        click.echo(f"the coordinator gives it nothing more; {what}")
    elif ended and Principal.parse(name).role is Role.AGENT:
        click.echo(
            "the jobs that it holds go to other hosts once the coordinator has heard of this, or "
            "within some minutes\n([coordinator] crash_grace_s, stale_after_s)"
        )
    click.echo(f"the broker's list is {home / 'broker' / 'crl.pem'}")
    if Principal.parse(name).role in {Role.AGENT, Role.COORDINATOR}:
        _expel(authority, addresses, name)
    else:
        click.echo(
            "a person's programs that are connected stay so, but on `fleet broker`; to end their "
            "rights, run `fleet broker config` again and reload the broker"
        )


def _expel(authority: Authority, addresses: tuple[Address, ...] | None, name: str) -> None:
    from broker.expulsion import Outcome, expel

    if addresses is None:
        click.echo("no broker is known, so a connection that it has goes on; name it: --broker URL")
        return
    where = text_of(addresses)
    outcome, why = expel(authority, addresses, name, system_clock().wall_s)
    match outcome:
        case Outcome.OUT:
            click.echo(f"{name} has no connection to {where}, and did not come back")
        case Outcome.BACK:
            raise NotDone(
                f"{name} is still let in by {where}: give that broker the new list, reload it "
                f"(docs/identity.md), and run `fleet revoke {name}` again"
            )
        case Outcome.UNREACHABLE:
            click.echo(
                f"{where} did not let this machine in ({why}), so a connection that {name} has "
                f"there goes on; name the broker with --broker, and run this again",
                err=True,
            )


def _addresses(home: Path, given: str | None, config: str | None) -> tuple[Address, ...] | None:
    """Return where the broker is, for TLS: as it is set, else by its certificate; none if unknown.

    It may be on this machine in plain text, and still serve hosts over TLS.
    """
    settings = BrokerSettings.load(Path(config) if config else None, {"url": given})
    addresses = parse_addresses(settings.url)
    if addresses[0].tls:
        return addresses
    try:
        return parse_addresses(broker_url(home))
    except ConfigError:
        return None  # another machine makes the broker's certificate


def _check_known(authority: Authority, name: str) -> None:
    from broker.ca import BROKER_NAME

    issued = [one for one in authority.issued() if one.name != BROKER_NAME]
    if not any(one.name == name for one in issued):
        known = sorted({one.name for one in issued if one.revoked_s is None})
        raise NotDone(f"{name} has no certificate that holds; there are: {', '.join(known)}")
