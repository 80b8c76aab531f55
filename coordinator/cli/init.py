"""`fleet init` and `fleet operator-key`."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from broker.errors import ConfigError, LocalError
from broker.pki import ca_journal, keyfiles
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.system.address import Address, parse_address, parse_addresses, text_of
from broker.system.machine import system_clock
from broker.system.settings import BrokerSettings, expanded, usual_config
from broker.wrapping import quoted
from coordinator.cli.ca_folder import (
    BROKER_CERTIFICATE,
    BROKER_KEY,
    Office,
    broker_url,
    home_of,
    is_usual,
    login,
)
from coordinator.ui.options import PATH, flag, json_option, option
from coordinator.ui.words import is_json, print_json, say

if TYPE_CHECKING:
    from cryptography import x509

    from broker.pki.ca import Authority

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
RENEW_SHARE: Final = 1 / 3
_DNS_NAME: Final = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*"
)

KEY_BYTES = 32  # as long as what HMAC-SHA256 makes of it


class Made(NamedTuple):
    """What was made, and in which folder; `is_new`: nothing was there that it takes the place of.

    The record has no use for the advice.
    """

    path: Path
    what: str
    advice: str = ""
    is_new: bool = True

    def whole(self) -> str:
        """Return what it is, and what to do about it."""
        return f"{self.what}; {self.advice}" if self.advice else self.what


class Step(NamedTuple):
    """What comes next: its name for scripts, what it is for, and the commands that do it."""

    name: str
    why: str
    commands: Sequence[str] = ()


@click.command("init")
@option("--broker brokers", "NAME",
        "Name or address by which hosts reach the broker.", multiple=True)  # fmt: skip
@flag("--cluster", "The broker is a cluster, whose nodes know each other by it.")
@option("--operator", "NAME", "Who may give orders.  [default: your login]")
@option("-o --home", "DIR", "Where to put everything.  [default: ~/.config/fleet]", type=PATH)
@json_option
def init_command(
    brokers: Sequence[str], cluster: bool, operator: str | None, home: Path | None
) -> None:
    """Make the fleet's CA and the certificates of broker, coordinator and operator.

    A second run makes what is missing, renews what is near its end, adds further names to the
    broker's certificate, and changes nothing else. Where hosts are still sent it says, with the
    file and the key that change it.

    Example: fleet init --broker pi.lan --broker 192.0.2.7
    """
    home = home_of(home)
    now_s = system_clock().wall_s
    done: list[Made] = []
    person = _operator(home, operator)  # first: what is wrong with it leaves nothing half made
    authority = _authority(home, brokers, now_s, done)
    _broker(authority, home, brokers, now_s, done, cluster=cluster)
    _client(authority, home, "coordinator", now_s, done)
    _client(authority, home, person, now_s, done)
    office = Office(home, authority)
    office.publish()
    if done:
        office.note("init", person, "; ".join(one.what for one in done))
    if len(ca_journal.read(home / "ca").entries) > 1:  # at the first time there is nobody to tell
        office.tell()
    steps = _next(home, person, done, brokers)
    if is_json():
        made = [{"path": str(one.path), "what": one.whole()} for one in done]
        following = {step.name: [*step.commands] for step in steps}
        print_json({"ok": True, "home": str(home), "made": made, "next": following})
        return
    if not done:
        say(f"{home}: everything is there already; nothing was changed")
    for one in done:
        say(f"made  {one.path}: {one.whole()}", indent=6)
    for step in steps:
        say(f"\n{step.why}{':' if step.commands else ''}")
        for command in step.commands:
            click.echo(f"  {command}")


def _authority(home: Path, brokers: Sequence[str], now_s: float, done: list[Made]) -> Authority:
    from broker.pki.ca import KEY_FILE, Authority

    folder = home / "ca"
    if (folder / KEY_FILE).exists():
        return Authority(folder)
    if not brokers:
        raise ConfigError(
            "--broker NAME: say by which name or address hosts reach the broker, such as pi.lan"
        )
    for name in brokers:
        _checked(name)
    done.append(Made(folder, "the CA", "keep ca.key safe, whoever has it can be anybody"))
    return Authority.create(folder, now_s)


def _broker(
    authority: Authority, home: Path, brokers: Sequence[str], now_s: float, done: list[Made], *,
    cluster: bool,
) -> None:  # fmt: skip
    from broker.pki.ca import alternative_names, is_node

    folder = home / "broker"
    path = folder / BROKER_CERTIFICATE
    present: list[str] = []
    is_whole = False
    if path.exists():
        certificate = certs.read_certificate(path)
        present = alternative_names(certificate)
        is_whole = (folder / BROKER_KEY).exists() and not _near_its_end(certificate, now_s)
        is_whole = is_whole and (is_node(certificate) or not cluster)
        cluster = cluster or is_node(certificate)
    # The name that people type comes before those that only this machine knows.
    names = list(dict.fromkeys([*present, *map(_checked, brokers), *LOCAL_NAMES]))
    if is_whole and names == present:
        return
    if names == list(LOCAL_NAMES) and not brokers:
        raise ConfigError("--broker NAME: say by which name or address hosts reach the broker")
    key = certs.new_key()
    made = authority.issue_broker(key.public_key(), names, now_s, node=cluster)
    keyfiles.private_folder(folder)
    keyfiles.write(folder / BROKER_KEY, certs.key_pem(key))
    keyfiles.write(folder / ids.CA_FILE, authority.pem, keyfiles.PUBLIC)
    keyfiles.write(path, made, keyfiles.PUBLIC)
    what = f"the broker's certificate, for {', '.join(names)}"
    done.append(Made(folder, what, is_new=not present))


def _client(authority: Authority, home: Path, name: str, now_s: float, done: list[Made]) -> None:
    folder = home / "identities" / ids.folder_name(name)
    path = folder / ids.CERTIFICATE_FILE
    is_new = not path.exists()
    if is_new and authority.holding(name, now_s) is not None:
        return  # it was given to somebody, somewhere else
    if not is_new and not _near_its_end(certs.read_certificate(path), now_s):
        return
    key = certs.new_key()
    made = authority.issue(key.public_key(), name, now_s, replace=True)
    ids.write_identity(folder, authority.pem, made, certs.key_pem(key), broker_url(home, name))
    done.append(Made(folder, f"the certificate of {name}", is_new=is_new))


def _near_its_end(certificate: x509.Certificate, now_s: float) -> bool:
    begins_s, ends_s = certs.validity_s(certificate)
    return ends_s - now_s < RENEW_SHARE * (ends_s - begins_s)


def _operator(home: Path, given: str | None) -> str:
    """Return whose identity to see to: who is named, who is there, or who is logged in."""
    if given is None:
        folder = home / "identities"
        there = sorted(folder.glob("operator@*")) if folder.is_dir() else []
        if there:
            return there[0].name.replace("@", ":")
    name = login() if given is None else f"operator:{given.removeprefix('operator:')}"
    try:
        ids.folder_name(name)
    except ConfigError:
        raise ConfigError(
            f"--operator {given or ''}: write it with a-z, 0-9, '.', '_', '-', such as alice"
        ) from None
    return name


def _checked(name: str) -> str:
    name = name.strip().strip("[]").lower()
    try:
        return str(ip_address(name))
    except ValueError:
        pass
    if not _DNS_NAME.fullmatch(name):
        raise ConfigError(
            f"--broker {name}: write a name or an address alone, such as pi.lan; for another port "
            'than 8883 first put `url = "mqtts://NAME:PORT"` into [broker] of fleet.toml'
        )
    return name


def _next(home: Path, person: str, done: Sequence[Made], brokers: Sequence[str]) -> list[Step]:
    """Return what comes next: of a new fleet its programs, else what is due to what is new."""
    made = {one.path: one.is_new for one in done}
    if made.get(home / "identities" / "coordinator"):
        return _first_steps(home, person)
    steps = []
    if home / "broker" in made:
        why = (
            "`fleet broker` takes its new certificate from there by itself; another broker wants a "
            f"copy of {home / 'broker'}, and a restart"
        )
        steps.append(Step("broker", why))
    folder = home / "identities" / ids.folder_name(person)
    if made.get(folder):
        steps += _steps_of_person(folder, person)
    return [*steps, *_addresses(home, person, brokers)]


def _addresses(home: Path, person: str, brokers: Sequence[str]) -> Iterator[Step]:
    """Yield where an address that is written down stays as it is, though another may be meant."""
    for name in ("coordinator", person):
        path = home / "identities" / ids.folder_name(name) / ids.BROKER_FILE
        said, url = ids.broker_of(path.parent), broker_url(home, name)
        if said not in {None, url}:
            why = (
                f"{path} says {said} and was left so; where nothing else is set, programs with "
                f"that identity go there: write {url} into it if the broker is there now"
            )
            yield Step("written", why)
    addresses = parse_addresses(BrokerSettings.load().url)
    used = addresses if addresses[0].tls else parse_addresses(broker_url(home, "coordinator"))
    names = [*map(_checked, brokers)]
    if names and not {one.host for one in used} & {*names}:
        other = Address(names[0], used[0].port, tls=True)
        why = (
            f"hosts that are enrolled, and the programs here, go to {text_of(used)} all the same; "
            f'to have them go elsewhere, write `url = "{other}"` into [broker] of {usual_config()}'
        )
        yield Step("address", why)


def _first_steps(home: Path, person: str) -> list[Step]:
    """Return how a fleet is begun: its programs here, its hosts, and a look at it."""
    identities = home / "identities"
    own = persons = homes = ""
    if not is_usual(home):
        own = f" --identity {quoted(identities / 'coordinator')}"
        persons = f" --identity {quoted(identities / ids.folder_name(person))}"
        homes = f" --home {quoted(home)}"
    port = parse_address(broker_url(home, "coordinator")).port
    here = (
        "next, here (docs/reference/brokers.md has mosquitto and others as well: `fleet broker "
        "config mosquitto` gives people's programs a port of their own; for now, that is "
        f"{broker_url(home, person)})"
    )
    programs = [
        f"fleet broker --listen 0.0.0.0:{port} --identity {quoted(home / 'broker')}",
        f"fleet coordinator{own} --manifest PLAN.toml --ca {quoted(home / 'ca')}",
    ]
    hosts = "for each host, and do on it what this prints"
    return [
        Step("here", here, programs),
        Step("hosts", hosts, [f"fleet enroll HOST{homes}"]),
        Step("look", "to look at it", [f"fleet status{persons}"]),
    ]


def _steps_of_person(folder: Path, person: str) -> list[Step]:
    """Return how somebody who is new to a fleet that is there gets at it."""
    bring = (
        f"next, for {person}: carry the folder {folder} to their machine, as ~/.config/fleet/"
        f"identities/{folder.name} (its key is secret: whoever has it can give orders); there, try"
    )
    beside = "here, where several people are known now, say which"
    rights = (
        "mosquitto, RabbitMQ and NATS know people by their own files: make them again (`fleet "
        "broker config`, docs/reference/brokers.md)"
    )
    return [
        Step("there", bring, ["fleet status"]),
        Step("here", beside, [f"fleet status --identity {quoted(folder)}"]),
        Step("rights", rights),
    ]


@click.command("operator-key")
@option("-o --output", "FILE", "Where to; must not exist.", type=PATH, required=True)
@json_option
def operator_key_command(output: Path) -> None:
    """Make an operator key: commands are then taken from those who have it.

    The file can be read by its owner alone, and the key is shown nowhere. The coordinator and each
    operator need the same: name it as `[broker] operator_key_file` on their machines.

    Example: fleet operator-key -o ~/.config/fleet/operator.key
    """
    path = expanded(output).absolute()
    if os.path.lexists(path):
        raise LocalError(f"{output} exists already; choose another name or move it away")
    keyfiles.write(path, f"{secrets.token_hex(KEY_BYTES)}\n".encode())
    config = usual_config()
    if is_json():
        print_json({"ok": True, "file": str(path), "config": str(config)})
        return
    say(f"{path}: made")
    say(
        "next: copy it to the coordinator's machine and to each operator's, and name it there in "
        f"{config}:\n"
    )
    click.echo(f'  [broker]\n  operator_key_file = "{path.as_posix()}"\n')
    say("then start the coordinator again: it takes signed commands only from then on")
