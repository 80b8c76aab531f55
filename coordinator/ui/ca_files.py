"""What `fleet init`, `enroll` and `revoke` share: where the CA's parts are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from broker.client.access import PEOPLE
from broker.errors import ConfigError
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.protocol.acl import Principal
from broker.system.address import DEFAULT_TLS_PORT, Address, parse_address, parse_addresses, text_of
from broker.system.settings import BrokerSettings, config_home, expanded

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
    """Keep at which ports the broker serves hosts and people, for the addresses that are made here.

    Those beside the identities in `home` are written anew with them. Raises OSError.
    """
    text = json.dumps({"hosts": hosts, "people": people})
    keyfiles.write(home / "ca" / PORTS_FILE, f"{text}\n".encode(), keyfiles.PUBLIC)
    for path in sorted((home / "identities").glob(f"*/{ids.BROKER_FILE}")):
        said = ids.broker_of(path.parent)
        port = people if _is_person(path.parent.name.replace("@", ":")) else hosts
        url = str(replace(parse_address(said), port=port)) if said else said
        if url is not None and url != said:
            keyfiles.write(path, f"{url}\n".encode(), keyfiles.PUBLIC)


def ports(home: Path) -> tuple[int, int] | None:
    """Return the ports of hosts and people; none where `fleet broker config` has not kept them.

    Raises `ConfigError` for a file that is damaged.
    """
    path = home / "ca" / PORTS_FILE
    if not path.exists():
        return None
    try:
        found = json.loads(keyfiles.read(path, MAX_PORTS_BYTES))
        return int(found["hosts"]), int(found["people"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: is damaged; run `fleet broker config` again") from None


def addresses_of(home: Path, addresses: Sequence[Address], name: str) -> tuple[Address, ...]:
    """Return a broker's addresses as the programs of `name` use them.

    A broker may serve people at another port than hosts: whichever of the two is written, theirs is
    meant.
    """
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
