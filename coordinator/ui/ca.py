"""What `fleet init`, `enroll` and `revoke` share: where the CA's parts are, and its journal.

The coordinator is told of everything that it has not been told of yet. Where it cannot be reached,
the next of these commands tells it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from broker.client.access import PEOPLE
from broker.errors import ConfigError, FleetError, plain
from broker.pki import ca_journal, keyfiles
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.protocol.acl import Principal
from broker.sentences import printable
from broker.system.address import DEFAULT_TLS_PORT, Address, parse_address, parse_addresses, text_of
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings, config_home, expanded
from coordinator.client.contact import NotDone
from coordinator.ui.words import say

if TYPE_CHECKING:
    from broker.pki.ca import Authority

BROKER_CERTIFICATE = "broker.crt"
BROKER_KEY = "broker.key"
PORTS_FILE: Final = "ports.json"
MAX_PORTS_BYTES: Final = 4096

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder that `fleet init` made.  [default: ~/.config/fleet]",
)


TIMEOUT_S: Final = 5.0


def home_of(given: Path | None) -> Path:
    """Return the folder that holds `ca`, `broker` and `identities`."""
    return expanded(given or config_home()).absolute()


def is_usual(home: Path) -> bool:
    """Whether that folder is where it is looked for unless somebody says another."""
    try:
        return home == home_of(None)
    except ConfigError:  # who has no home has to say it
        return False


def publish(authority: Authority, home: Path) -> None:
    """Put the newest CRL into the broker's folder. Raises OSError."""
    from broker.pki.ca import CRL_FILE

    folder = home / "broker"
    if folder.is_dir():
        data = keyfiles.read(authority.folder / CRL_FILE, 64 * 1024 * 1024)
        path = folder / CRL_FILE
        if not path.exists() or path.read_bytes() != data:
            keyfiles.write(path, data, keyfiles.PUBLIC)


def write_ports(home: Path, hosts: int, people: int) -> None:
    """Save the broker's ports of hosts and people, and update the identities in `home`."""
    text = json.dumps({"hosts": hosts, "people": people})
    keyfiles.write(home / "ca" / PORTS_FILE, f"{text}\n".encode(), keyfiles.PUBLIC)
    for path in sorted((home / "identities").glob(f"*/{ids.BROKER_FILE}")):
        said = ids.broker_of(path.parent)
        port = people if _is_person(path.parent.name.replace("@", ":")) else hosts
        url = str(replace(parse_address(said), port=port)) if said else said
        if url is not None and url != said:
            keyfiles.write(path, f"{url}\n".encode(), keyfiles.PUBLIC)


def ports(home: Path) -> tuple[int, int] | None:
    """Return the saved ports of hosts and people, if any. Raises `ConfigError`."""
    path = home / "ca" / PORTS_FILE
    if not path.exists():
        return None
    try:
        found = json.loads(keyfiles.read(path, MAX_PORTS_BYTES))
        return int(found["hosts"]), int(found["people"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: is damaged; run `fleet broker config` again") from None


def addresses_of(home: Path, addresses: Sequence[Address], name: str) -> tuple[Address, ...]:
    """Return a broker's addresses with the port that is meant for `name`, host or person."""
    both = ports(home)
    if both is None:
        return tuple(addresses)
    port = both[_is_person(name)]
    names = _names(home) if (home / "broker" / BROKER_CERTIFICATE).exists() else ()
    return tuple(
        replace(one, port=port) if one.port in both and (not names or one.host in names) else one
        for one in addresses
    )


def broker_url(home: Path, name: str) -> str:
    """Return the broker's address for `name`, by the first name of the broker's certificate.

    Its port is that of `[broker] url` (or `FLEET_BROKER`) where this names the same broker. Raises
    `ConfigError` with the remedy when there is no name, or the setting is wrong.
    """
    names = _names(home)
    if not names:
        path = home / "broker" / BROKER_CERTIFICATE
        raise ConfigError(f"{path}: has no names in it; make another with `fleet init --broker`")
    set_ = [one for one in parse_addresses(BrokerSettings.load().url) if one.tls]
    usual = (ports(home) or (DEFAULT_TLS_PORT,))[0]
    port = next((one.port for one in set_ if one.host in names), usual)
    return text_of(addresses_of(home, [Address(names[0], port, tls=True)], name))


def _names(home: Path) -> Sequence[str]:
    """Return the names and addresses in the broker's certificate. Raises `ConfigError`."""
    from broker.pki.ca import alternative_names

    return alternative_names(certs.read_certificate(home / "broker" / BROKER_CERTIFICATE))


def _is_person(name: str) -> bool:
    return Principal.parse(name).role in PEOPLE


def doer(home: Path) -> str:
    """Return who works with the CA: the one person whose identity is here, or who is logged in."""
    try:
        found = ids.find_identity(home / "identities", frozenset(role.value for role in PEOPLE))
    except ConfigError:
        found = None  # several
    return login() if found is None else found.name.replace("@", ":")


def login() -> str:
    """Return the operator's name that goes with who is logged in."""
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        name = ""
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:40]
    return f"operator:{plain or 'owner'}"


def note(authority: Authority, home: Path, action: str, name: str, what: str = "") -> str:
    """Put an entry into the journal and return its id. Raises `ConfigError` or OSError."""
    entry = ca_journal.Entry(new_id(), system_clock().wall_s, doer(home), action, name, what[:2000])
    ca_journal.add(authority, entry)
    return entry.id


def tell(
    authority: Authority, home: Path, broker: str | None, config: Path | None
) -> dict[str, Any]:  # fmt: skip
    """Tell the coordinator what it does not know yet, if it answers; return answers by entry."""
    untold = [one for one in ca_journal.read(authority.folder) if not one.told]
    answers: dict[str, Any] = {}
    if not untold:
        return answers
    try:
        _tell(_where(authority, home, broker, config), untold, answers)
    except (FleetError, OSError) as error:
        why = printable(plain(error)).partition("\n")[0]
        say(
            f"not recorded at the coordinator yet: {why}; the next `fleet init`, `enroll` or "
            "`revoke` here tells it, and a coordinator that was started with --ca reads it",
            err=True,
            indent=2,
        )
    if answers:
        ca_journal.mark_told(authority, answers)
    return answers


def _where(
    authority: Authority, home: Path, broker: str | None, config: Path | None
) -> BrokerSettings:
    """Return how to reach the coordinator from the CA's machine, by the identity that is there."""
    settings = BrokerSettings.load(config, {"url": broker})
    # The one that is set may be the coordinator's own, on its machine.
    found = _identity(authority, home)
    name = doer(home) if found is None else found.name.replace("@", ":")
    changed: dict[str, Any] = {} if found is None else {"identity": found}
    if "url" not in settings.model_fields_set:
        changed["url"] = broker_url(home, name)
    elif (addresses := parse_addresses(settings.url))[0].tls:
        changed["url"] = text_of(addresses_of(home, addresses, name))
    return settings.model_copy(update=changed)


def _identity(authority: Authority, home: Path) -> Path | None:
    """Return the folder of an operator's identity that holds: whose login this is, else any."""
    folder, now_s = home / "identities", system_clock().wall_s
    found = sorted(folder.glob("operator@*")) if folder.is_dir() else []
    holding = {
        one.name.replace("@", ":"): one
        for one in found
        if authority.holding(one.name.replace("@", ":"), now_s) is not None
    }
    return holding.get(login()) or next(iter(holding.values()), None)


def _tell(
    settings: BrokerSettings, untold: list[ca_journal.Entry], answers: dict[str, Any]
) -> None:  # fmt: skip
    from coordinator.client.client import OperatorClient

    with OperatorClient(settings, TIMEOUT_S) as client:
        for entry in untold:
            try:
                answers[entry.id] = client.ask(ca_journal.request_of(entry))
            except NotDone as refusal:
                raise NotDone(f"the coordinator refused it: {refusal}") from None
