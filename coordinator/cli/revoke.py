"""`fleet revoke`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from broker.clock import rfc3339
from broker.errors import ConfigError
from broker.pki import identity as ids
from broker.protocol.acl import Principal
from broker.protocol.topic_table import Role
from broker.protocol.topics import Topics
from broker.system.address import Address, text_of
from broker.system.machine import system_clock
from broker.wrapping import printable
from coordinator.cli.ca_folder import Office, ca_options
from coordinator.client.contact import NotDone
from coordinator.ui.options import json_option
from coordinator.ui.words import is_json, print_json, say

if TYPE_CHECKING:
    from broker.pki.ca import Authority, Issued

_OF_A_PERSON: Final = (
    "a person's programs that are connected stay so, but on `fleet broker`; to end their rights, "
    "run `fleet broker config` again and reload the broker"
)


@click.command("revoke")
@click.argument("name", metavar="NAME")
@ca_options("Where the broker is, and the coordinator.")
@json_option
def revoke_command(office: Office, name: str) -> None:
    """Take a certificate back, on the machine that has the CA.

    The coordinator gives a host nothing more then, and what the host holds to others. Ends the
    connection that a host has, by taking its place for some seconds, and tells whether the broker
    lets it in still. `fleet broker` takes the new list of the revoked by itself; give it to another
    broker (docs/how-to/identity.md), and run this again.

    Example: fleet revoke gaming-pc
    """
    ids.folder_name(name)
    authority, topics = office.authority, Topics(office.settings().topic_root)
    try:
        addresses = office.addresses(name)
    except ConfigError:
        addresses = None  # another machine makes the broker's certificate
    ended = authority.revoke(name, system_clock().wall_s)
    office.publish()
    entry = office.note("revoke", name) if ended else ""
    told = office.tell()
    if not ended:
        _check_known(authority, name)
    role = Principal.parse(name).role
    jobs = told[entry]["jobs"] if entry in told and role is Role.AGENT else None
    crl = office.home / "broker" / "crl.pem"
    if not is_json():
        _say_revoked(name, ended, jobs)
        say(f"the broker's list is {crl}")
    if role in {Role.AGENT, Role.COORDINATOR}:
        connection, words = _expel(authority, addresses, topics, name)
    else:
        connection, words = "unknown", _OF_A_PERSON
    if is_json():
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


def _check_known(authority: Authority, name: str) -> None:
    from broker.pki.ca import BROKER_NAME

    issued = [one for one in authority.issued() if one.name != BROKER_NAME]
    if not any(one.name == name for one in issued):
        known = sorted({one.name for one in issued if one.revoked_s is None})
        raise NotDone(f"{name} has no certificate that holds; there are: {', '.join(known)}")
