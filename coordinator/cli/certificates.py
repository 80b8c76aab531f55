"""What `fleet init`, `enroll` and `revoke` share: where the CA's parts are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker import certificates as certs
from broker import private
from broker.address import DEFAULT_TLS_PORT, Address, parse_addresses
from broker.errors import ConfigError
from broker.settings import BrokerSettings, config_home, expanded

if TYPE_CHECKING:
    from broker.ca import Authority

BROKER_CERTIFICATE = "broker.crt"
BROKER_KEY = "broker.key"

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
    from broker.ca import CRL_FILE

    folder = home / "broker"
    if folder.is_dir():
        data = private.read(authority.folder / CRL_FILE, 64 * 1024 * 1024)
        path = folder / CRL_FILE
        if not path.exists() or path.read_bytes() != data:
            private.write(path, data, private.PUBLIC)


def broker_url(home: Path) -> str:
    """Return the broker's address by the first name of its certificate.

    Its port is that of `[broker] url` (or `FLEET_BROKER`) where this names the same broker. Raises
    `ConfigError` with the remedy when there is no name, or the setting is wrong.
    """
    from broker.ca import alternative_names

    path = home / "broker" / BROKER_CERTIFICATE
    names = alternative_names(certs.read_certificate(path))
    if not names:
        raise ConfigError(f"{path}: has no names in it; make another with `fleet init --broker`")
    ports = [
        one.port
        for one in parse_addresses(BrokerSettings.load().url)
        if one.tls and one.host in names
    ]
    return str(Address(names[0], ports[0] if ports else DEFAULT_TLS_PORT, tls=True))
