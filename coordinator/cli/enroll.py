"""`fleet enroll`."""

from __future__ import annotations

import dataclasses
import re
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from broker.errors import ConfigError
from broker.figures import span, span_s
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.protocol.acl import Principal
from broker.protocol.topic_table import Role
from broker.system.address import parse_addresses, text_of
from broker.system.machine import system_clock
from broker.wrapping import quoted
from coordinator.cli.ca_folder import Office, ca_options
from coordinator.client.contact import NotDone
from coordinator.ui.options import PATH, flag, json_option, option
from coordinator.ui.progress import waiting
from coordinator.ui.words import is_json, print_json_line, say

if TYPE_CHECKING:
    from broker.pki.ca import Authority, Issued

DEFAULT_FOR: Final = "15m"
MAX_FOR_S: Final = 86_400.0


@click.command("enroll")
@click.argument("name", metavar="NAME")
@option("-o --out", "FILE", "Write a file to carry to the host, and do not wait.", type=PATH)
@option("--address", "HOST[:PORT]", "Where the host reaches this machine.")
@option("--for lasts", "TIME", "How long to wait for the host: 90s, 15m, 2h.",
        default=DEFAULT_FOR, show_default=True)  # fmt: skip
@flag("--replace", "Revoke the certificate that NAME has.")
@ca_options("Address that the host is to use.")
@json_option
def enroll_command(
    office: Office, name: str, out: Path | None, address: str | None, lasts: str, replace: bool,
) -> None:  # fmt: skip
    """Give a host a certificate, on the machine that has the CA.

    Prints one line to run on the host, and waits until it has fetched its certificate; the host
    makes its own key. With -o everything goes into one file instead, which is secret. For a host
    that had one before, revoked or not, take --replace; the line says it as well.

    NAME is a host's, or a person's: operator:NAME may give orders, observer:NAME may look.

    With --json it prints two objects, a line each: what is to be run there, and what came of it.

    \b
    Examples:
      fleet enroll gaming-pc
      fleet enroll operator:alice -o alice.fleet
    """  # noqa: D301 - \b is click's
    ids.folder_name(name)
    url = text_of(office.addresses(name))
    lasts_s = _seconds(lasts)
    old = office.authority.check_free(name, system_clock().wall_s, replace=replace)
    if out is not None:
        _to_file(office.authority, name, url, out, old)
        how = "its certificate is in a file"
    else:
        how = _wait(office.authority, name, url, address, lasts_s, replace=replace)
    office.publish()
    office.note("enroll", name, how + (", earlier ones are revoked" * replace))
    dataclasses.replace(office, broker=url).tell()


def _to_file(authority: Authority, name: str, url: str, out: Path, old: Issued | None) -> None:
    from broker.pki.identity_file import Bundle

    if out.exists():
        raise ConfigError(f"{out}: is there already; remove it, or choose another -o FILE")
    key, option = certs.new_key(), _again(authority, name)
    # A bundle that cannot be written should not cost the host the certificate that it has.
    keyfiles.write(out, b"")
    try:
        certificate = authority.issue(
            key.public_key(), name, system_clock().wall_s, replace=old is not None
        )
        made = Bundle(name, url, authority.pem, certificate, certs.key_pem(key))
        keyfiles.write(out, made.encode())
    except BaseException:
        out.unlink(missing_ok=True)
        raise
    command = f"fleet join {quoted(out.name)}{option}"
    if is_json():
        print_json_line({"ok": True, "name": name, "file": str(out), "run": command})
    else:
        say(f"wrote {out}; it is secret: carry it to {_place(name)}, and there")
        click.echo(f"  {command}")
    if old is not None:
        say(
            f"the certificate that {name} had until {ids.day(old.ends_s)} is revoked as of now: "
            f"{name} is cut off until it has joined with this one",
            err=True,
        )


def _wait(
    authority: Authority, name: str, url: str, given: str | None, lasts_s: float, *,
    replace: bool,
) -> str:  # fmt: skip
    """Wait until the host has come; return how it did, in words."""
    from broker.pki.enrolment import DEFAULT_PORT, End, Offer, new_token, wait_for_joining

    host, port = _split(given or _own_address(parse_addresses(url)[0].host), DEFAULT_PORT)
    token, option = new_token(authority), _again(authority, name)
    stack = ExitStack()

    def ready(port: int) -> None:
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        command = f"fleet join {shown} {token.text()}{option}"
        if is_json():
            print_json_line({"name": name, "run": command, "within_s": lasts_s})
            sys.stdout.flush()
        else:
            say(f"run this on {_place(name)}, within {span(lasts_s)}:\n")
            click.echo(f"  {command}\n")
        stack.enter_context(waiting(f"waiting for {name}, {span(lasts_s)} at most"))

    offer = Offer(authority, name, url, token, lasts_s, replace)
    with stack:
        enrolment = wait_for_joining(offer, host, port, ready)
    again = f"fleet enroll {name}{' --replace' * replace}"
    match enrolment.end:
        case End.JOINED:
            if is_json():
                print_json_line({"ok": True, "name": name, "peer": enrolment.peer})
            else:
                say(f"{name} has its certificate (asked for from {enrolment.peer})")
            return f"it fetched its certificate from {enrolment.peer}"
        case End.EXPIRED:
            raise NotDone(
                f"nobody has come for the certificate of {name} within {span(lasts_s)}; run "
                f"`{again}` again"
            )
        case _:
            raise NotDone(
                "somebody tried wrong tokens, and this one was given up; see who can reach this "
                f"port, and run `{again}` again"
            )


def _again(authority: Authority, name: str) -> str:
    """Return the option that `fleet join` needs where an identity of this name may be already."""
    return " --replace" * any(one.name == name for one in authority.issued())


def _place(name: str) -> str:
    """Return the machine that a certificate is for, in words: that of a host is its name."""
    match Principal.parse(name).role:
        case Role.AGENT:
            return name
        case Role.COORDINATOR:
            return "the coordinator's machine"
        case Role.HOMEASSISTANT:
            return "the machine of Home Assistant"
        case _:
            return f"the machine of {name}"


def _own_address(broker: str) -> str:
    """Return this machine's address on the way to the broker; the broker's name if that is here."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((broker, 9))  # of a datagram socket: nothing is sent
            own = str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
    return broker if own.startswith("127.") else own


def _split(text: str, default_port: int) -> tuple[str, int]:
    """Return host and port of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`."""
    found = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?", text)
    if found is None or int(found[2] or 0) > 65_535:
        raise ConfigError(f"{text}: write it as HOST:PORT, such as 192.0.2.7:8885")
    return found[1].strip("[]"), default_port if found[2] is None else int(found[2])


def _seconds(text: str) -> float:
    seconds = span_s(text) or 0.0
    if not 0 < seconds <= MAX_FOR_S:
        raise ConfigError(f"--for {text}: write a time up to a day, such as 90s, 15m or 2h")
    return seconds
