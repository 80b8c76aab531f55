"""`fleet revoke`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from broker.clock import rfc3339
from broker.errors import ConfigError
from broker.pki import identity as ids
from broker.protocol.acl import Principal
from broker.protocol.topic_table import Role
from broker.protocol.topics import Topics
from broker.sentences import printable
from broker.system.address import Address, parse_addresses, text_of
from broker.system.machine import system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.contact import NotDone
from coordinator.ui.ca import addresses_of, broker_url, home_of, home_option, note, publish, tell
from coordinator.ui.options import json_option, option
from coordinator.ui.words import print_json, say

if TYPE_CHECKING:
    from broker.pki.ca import Authority, Issued

_OF_A_PERSON: Final = (
    "a person's programs that are connected stay so, but on `fleet broker`; to end their rights, "
    "run `fleet broker config` again and reload the broker"
)


@click.command("revoke")
@click.argument("name", metavar="NAME")
@home_option
@option("--broker", "URL", "Where the broker is, and the coordinator.")
@option("--config", "FILE", "Configuration file.")
@json_option
@click.pass_context
def revoke_command(
    ctx: click.Context, name: str, home: Path | None, broker: str | None, config: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Take a certificate back, on the machine that has the CA.

    The coordinator gives a host nothing more then, and what the host holds to others. Ends the
    connection that a host has, by taking its place for some seconds, and tells whether the broker
    lets it in still. `fleet broker` takes the new list of the revoked by itself; give it to another
    broker (docs/how-to/identity.md), and run this again.

    Example: fleet revoke gaming-pc
    """
    from broker.pki.ca import Authority

    home = home_of(home)
    authority = Authority(home / "ca")
    ids.folder_name(name)
    given = ctx.obj or {}
    url, file = broker or given.get("broker"), config or given.get("config")
    settings = BrokerSettings.load(
        Path(file) if file else None, {"url": url, "topic_root": given.get("root")}
    )
    addresses = _addresses(home, settings, name)
    ended = authority.revoke(name, system_clock().wall_s)
    publish(authority, home)
    entry = note(authority, home, "revoke", name) if ended else ""
    told = tell(authority, home, url, Path(file) if file else None)
    if not ended:
        _check_known(authority, name)
    role = Principal.parse(name).role
    jobs = told[entry]["jobs"] if entry in told and role is Role.AGENT else None
    crl = home / "broker" / "crl.pem"
    if not as_json:
        _say_revoked(name, ended, jobs)
        say(f"the broker's list is {crl}")
    if role in {Role.AGENT, Role.COORDINATOR}:
        connection, words = _expel(authority, addresses, Topics(settings.topic_root), name)
    else:
        connection, words = "unknown", _OF_A_PERSON
    if as_json:
        certificates = [
            {"serial": one.serial, "until": rfc3339(one.ends_s), "revoked_now": one in ended}
            for one in (ended or authority.issued())
            if one.name == name
        ]
        found = {"name": name, "certificates": certificates, "jobs": jobs, "crl": str(crl)}
        print_json({"ok": True, **found, "connection": connection, "message": words})
    else:
        say(words, err=connection == "unreachable")


def _say_revoked(name: str, ended: Sequence[Issued], jobs: list[str] | None) -> None:
    """Say what was revoked, and what becomes of the jobs, if the coordinator has said it."""
    from broker.pki.ca import describe

    if not ended:
        say(f"{name} is revoked already")
    for one in ended:
        say(f"revoked {name} ({describe(one)})")
    if jobs is not None:
        names = ", ".join(map(printable, jobs))
        what = f"its jobs are in the queue again: {names}" if names else "it held no job"
        say(f"the coordinator gives it nothing more; {what}")
    elif ended and Principal.parse(name).role is Role.AGENT:
        say(
            "the jobs that it holds go to other hosts once the coordinator has heard of this, or "
            "within some minutes ([coordinator] stale_after_s)"
        )
    if ended and jobs != [] and Principal.parse(name).role is Role.AGENT:
        say(
            f"a job that {name} runs now is stopped there if its agent is reached; else it goes "
            "on, and its result is not taken: stop the agent on that machine"
        )


def _expel(
    authority: Authority, addresses: tuple[Address, ...] | None, topics: Topics, name: str
) -> tuple[str, str]:  # fmt: skip
    """End the connection that is there; return how it is now, and that in words.

    `none`, `unknown` where no broker is known, or `unreachable`. Raises `NotDone` where the broker
    lets it in still, or it is connected elsewhere.
    """
    from broker.client.expulsion import Outcome, expel

    if addresses is None:
        words = "no broker is known, so a connection that it has goes on; name it: --broker URL"
        return "unknown", words
    where = text_of(addresses)
    outcome, why = expel(authority, addresses, topics, name, system_clock().wall_s)
    match outcome:
        case Outcome.OUT:
            unseen = f"{name} has no connection to {where} under its usual client id"
            return "none", f"{unseen}, and did not come back"
        case Outcome.BACK:
            raise NotDone(
                f"{name} is still let in by {where}: give that broker the new list, reload it "
                f"(docs/how-to/identity.md), and run `fleet revoke {name}` again"
            )
        case Outcome.ELSEWHERE:
            raise NotDone(
                f"{name} is still connected, and not at {where} (its presence is online): name the "
                f"port where hosts connect with --broker, and run `fleet revoke {name}` again"
            )
        case Outcome.UNREACHABLE:
            return "unreachable", (
                f"this machine did not get into the broker ({why}), so a connection that {name} "
                "has there goes on; name the broker with --broker, and run this again"
            )


def _addresses(home: Path, settings: BrokerSettings, name: str) -> tuple[Address, ...] | None:
    """Return where `name` connects over TLS: by the settings, else the broker's certificate."""
    addresses = parse_addresses(settings.url)
    if addresses[0].tls:
        return addresses_of(home, addresses, name)
    try:
        return parse_addresses(broker_url(home, name))
    except ConfigError:
        return None  # another machine makes the broker's certificate


def _check_known(authority: Authority, name: str) -> None:
    from broker.pki.ca import BROKER_NAME

    issued = [one for one in authority.issued() if one.name != BROKER_NAME]
    if not any(one.name == name for one in issued):
        known = sorted({one.name for one in issued if one.revoked_s is None})
        raise NotDone(f"{name} has no certificate that holds; there are: {', '.join(known)}")
