"""How a program reaches the broker: address, identity, and TLS.

Beyond this machine, TLS with an identity of the fleet is required, unless `[broker] plain` says
that the network is trusted.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from broker.client.connection import LinkSettings
from broker.errors import ConfigError
from broker.pki.identity import Identity, broker_of, find_identity, load_identity
from broker.protocol.acl import Principal
from broker.protocol.topic_table import Role
from broker.protocol.topics import LOCAL_USER
from broker.system.address import Address, parse_addresses, text_of
from broker.system.settings import BrokerSettings, config_home

AGENT: Final = frozenset({Role.AGENT})
COORDINATOR: Final = frozenset({Role.COORDINATOR})
PEOPLE: Final = frozenset({Role.OPERATOR, Role.OBSERVER, Role.HOMEASSISTANT})
_WHOSE: Final = {
    AGENT: "a host",
    COORDINATOR: "the coordinator",
    PEOPLE: "a person, such as operator:alice",
}
_JOIN: Final = "get one with `fleet enroll` on the CA's machine and `fleet join` here"
_GET: Final = {
    AGENT: _JOIN,
    COORDINATOR: "`fleet init` makes one on the CA's machine; to have it elsewhere, `fleet enroll "
    "coordinator` there and `fleet join` here",
    PEOPLE: _JOIN,
}


@dataclass(frozen=True, slots=True)
class Access:
    """Where the broker is (several addresses are one cluster's) and as whom a program connects."""

    addresses: tuple[Address, ...]
    identity: Identity | None = None
    tls: Callable[[], ssl.SSLContext] | None = None

    @property
    def user(self) -> str:
        """Return who asks the coordinator, as in operators' topics."""
        return LOCAL_USER if self.identity is None else self.identity.name

    def link(self, client_id: str, filters: Sequence[tuple[str, int]], **more: Any) -> LinkSettings:
        """Return the settings of a link; `more` are others of theirs."""
        own = self.identity
        if own is not None:
            more |= {"name": own.name, "mark": own.mark}
        return LinkSettings(self.addresses, client_id, filters, tls=self.tls, **more)


def open_access(
    settings: BrokerSettings, accepts: frozenset[Role], now_s: float, name: str | None = None
) -> Access:
    """Return how a program of one of the roles in `accepts` connects to the broker.

    `name` is what the identity has to be called, if that is known; `now_s` is seconds since the
    epoch. Raises `ConfigError` for an unsafe connection, and for an identity that is incomplete or
    of somebody else.
    """
    addresses = parse_addresses(settings.url)
    if "url" not in settings.model_fields_set:
        if settings.identity is not None and not settings.identity.is_dir():
            load_identity(settings.identity, now_s)  # tells what is missing
        addresses = _of_identity(settings, accepts, name) or addresses
    if not addresses[0].tls:
        for address in addresses:
            _check_plain(settings, address)
        return Access(addresses)
    if settings.identity is None and addresses[0].user is not None:
        return Access(addresses, tls=_public)  # a broker of others, with passwords and a public CA
    folder = settings.identity or _found(accepts, name) or _found(accepts)
    if folder is None:
        home = config_home() / "identities"
        raise ConfigError(
            f"{text_of(addresses)}: no identity of {_WHOSE[accepts]} in {home}; {_GET[accepts]}, "
            "or name its folder with --identity"
        )
    identity = load_identity(folder, now_s)
    if Principal.parse(identity.name).role not in accepts:
        raise ConfigError(
            f"{folder}: this is the identity of {identity.name!r}, and {_WHOSE[accepts]} is wanted "
            "here; name another folder with --identity"
        )
    if name is not None and identity.name != name:
        raise ConfigError(
            f"{folder}: this is the identity of {identity.name!r}, not of {name!r}; leave the "
            "host's name out, or `fleet enroll` that one"
        )
    return Access(addresses, identity, identity.context)


def _of_identity(
    settings: BrokerSettings, accepts: frozenset[Role], name: str | None
) -> tuple[Address, ...] | None:
    """Return the broker's addresses that the identity's folder holds, if any."""
    try:
        folder = settings.identity or _found(accepts, name) or _found(accepts)
    except ConfigError:
        return None  # of several, somebody has to say which
    url = None if folder is None else broker_of(folder)
    return None if url is None else parse_addresses(url)


def _found(accepts: frozenset[Role], name: str | None = None) -> Path | None:
    """Return this user's identity folder of such a role; `ConfigError` where there are several."""
    try:
        home = config_home() / "identities"
    except ConfigError:
        return None  # who has no home has none there
    return find_identity(home, frozenset(role.value for role in accepts), name)


def host_here() -> str | None:
    """Return the host whose identity this user has; none beside a person's, or without one."""
    try:
        if _found(PEOPLE) is not None:
            return None
        folder = _found(AGENT)
    except ConfigError:
        return None  # there are several
    return None if folder is None else folder.name


def person_here(settings: BrokerSettings, now_s: float) -> str | None:
    """Return whose identity a person has here; none beside a host's identity, or without one."""
    try:
        if settings.identity is None and _found(AGENT) is not None:
            return None
        access = open_access(settings, PEOPLE, now_s)
    except ConfigError:
        return None  # there are several, or it is not whole: an agent is told of that as well
    return None if access.identity is None else access.identity.name


def _check_plain(settings: BrokerSettings, address: Address) -> None:
    if not (address.is_loopback() or settings.plain):
        raise ConfigError(
            f"{address}: without TLS, anybody on the way can read and change everything; use "
            f"mqtts://{address.host} (`fleet init` makes the certificates, `fleet enroll` a host's)"
            ", or say --plain where the network is to be trusted"
        )


def _public() -> ssl.SSLContext:
    made = ssl.create_default_context()
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    return made
