"""`fleet join`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from broker.errors import ConfigError, LocalError, plain
from broker.pki import identity as ids
from broker.protocol.acl import Principal
from broker.protocol.topic_table import Role
from broker.system.machine import system_clock
from broker.system.settings import config_home, expanded
from broker.wrapping import quoted
from coordinator.ui.options import PATH, flag, json_option, option
from coordinator.ui.words import is_json, print_json, say

if TYPE_CHECKING:
    from broker.pki.identity_file import Bundle

MAX_TOKEN_CHARS: Final = 200
USUAL_PORT: Final = 8885  # of `fleet enroll`, whose module takes long to load
_BARE: Final = re.compile(r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+")


@click.command("join")
@click.argument("source", metavar="FILE|ADDRESS:PORT")
@click.argument("token", required=False)
@option("-o --out", "DIR",
        "Where to put it.  [default: ~/.config/fleet/identities/NAME]", type=PATH)  # fmt: skip
@flag("--replace", "Replace the identity that is there.")
@json_option
def join_command(source: str, token: str | None, out: Path | None, replace: bool) -> None:
    """Take this host's certificate: from a file, or from a waiting `fleet enroll`.

    Without TOKEN it is asked for, or read from standard input, so that it is in no history. It is
    used up only when there is a place for the certificate. The broker's address comes with it:
    `fleet agent` then needs no --broker. An agent that runs here with an earlier certificate takes
    the new one by itself; one that has none is started again.

    \b
    Examples:
      fleet join 192.0.2.7:8885
      fleet join gaming-pc.fleet
    """  # noqa: D301 - \b is click's
    bundle, fresh = _take(source, token, out, replace=replace)
    folder = _folder(bundle.name, out)
    running = _running(bundle, folder)
    command = "" if running else _next(bundle, folder)
    if is_json():
        found = {"name": bundle.name, "folder": str(folder), "made": fresh, "next": command}
        print_json({"ok": True, **found})
        return
    say(f"{bundle.name}: {'made' if fresh else 'is there already:'} {folder}")
    if running:
        say(running)
    else:
        click.echo(f"next:\n  {command}")
    if fresh and Path(source).is_file():
        say(f"then delete {source}: whoever has it can be {bundle.name}")


def _take(
    source: str, token: str | None, out: Path | None, *, replace: bool
) -> tuple[Bundle, bool]:
    """Put an identity where it belongs; return it, and whether it was not there before."""
    from broker.pki.identity_file import install, read_bundle

    now_s = system_clock().wall_s
    if Path(source).is_file():
        bundle = read_bundle(Path(source), now_s)
        return bundle, install(bundle, _folder(bundle.name, out), replace=replace)
    bundle = _fetch(source, token, out, now_s, replace=replace)
    try:
        return bundle, install(bundle, _folder(bundle.name, out), replace=replace)
    except (ConfigError, OSError) as error:
        again = f"run `fleet enroll {bundle.name} --replace` there for another token"
        raise ConfigError(f"{plain(error)}; the token is used up: {again}") from None


def _fetch(
    source: str, token: str | None, out: Path | None, now_s: float, *, replace: bool
) -> Bundle:
    found = re.fullmatch(r"(\[[^\]/]+\]|[^:\[\]/]+):([0-9]{1,5})", source)
    if found is None or not 0 < int(found[2]) <= 65_535:
        raise ConfigError(_neither(source))
    from broker.pki.enrolment import fetch, parse_token
    from broker.pki.identity_file import check_place

    def check(name: str) -> None:
        try:
            check_place(_folder(name, out), replace=replace)
        except ConfigError as error:
            raise ConfigError(f"{error}; the token holds on, nothing was fetched") from None

    said = parse_token(token if token is not None else _ask())
    return fetch(found[1].strip("[]"), int(found[2]), said, now_s, check)


def _neither(source: str) -> str:
    """Say what is wrong with what is no file, and no address with a port."""
    if not _BARE.fullmatch(source):
        return f"{source}: there is no such file, and it is no address such as 192.0.2.7:8885"
    return (
        f"{source}: there is no such file; if it is an address, its port is wanted, too: "
        f"fleet join {source}:{USUAL_PORT}"
    )


def _ask() -> str:
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("token: ")
    return sys.stdin.readline(MAX_TOKEN_CHARS)


def _folder(name: str, out: Path | None = None) -> Path:
    """Return where somebody's identity goes: to `out`, if that was said."""
    usual = config_home() / "identities" / ids.folder_name(name)
    return expanded(usual if out is None else out).absolute()


def _running(bundle: Bundle, folder: Path) -> str:
    """Say what the agent that runs here with this identity does by itself; nothing without one."""
    if Principal.parse(bundle.name).role is not Role.AGENT:
        return ""
    from coordinator.ui.processes import answer_of

    try:
        found = answer_of("agent.running_agent", [str(folder)])
    except LocalError:
        return ""  # who joins is told how to start one
    if found["process"] is None:
        return ""
    who = f"the agent that runs here (process {found['process']})"
    if found["with_it"]:
        return f"{who} has connected with it by itself"
    if found["connected"]:
        return f"{who} is connected, and uses it from its next connection on"
    return f"{who} connects with it by itself, within seconds"


def _next(bundle: Bundle, folder: Path) -> str:
    own = "" if folder == _folder(bundle.name) else f" --identity {quoted(folder)}"
    role = Principal.parse(bundle.name).role
    if role is Role.AGENT:
        return f"fleet agent{own} --data DIR"
    if role is Role.COORDINATOR:
        return f"fleet coordinator{own} --manifest PLAN.toml"
    return f"fleet status{own}"
