"""Where the broker is, as people write it: `mqtt[s]://[user[:password]@]host[:port]`.

A cluster has several addresses, parted by commas.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from broker.errors import ConfigError

DEFAULT_PORT: Final = 1883
DEFAULT_TLS_PORT: Final = 8883
DEFAULT_URL: Final = "mqtt://127.0.0.1:1883"
IS_IT_THERE: Final = "is that its address, and is it running? --broker names another"
_BARE: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")
MAX_ADDRESSES: Final = 16


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's address; the password never shows in its text form."""

    host: str
    port: int = DEFAULT_PORT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"

    def is_loopback(self) -> bool:
        """Tell whether it is this machine for certain."""
        return is_loopback(self.host)


def parse_addresses(urls: str, source: str = "broker address") -> tuple[Address, ...]:
    """Return the addresses in `urls`, each once, in their order; a comma within one is `%2C`."""
    found = tuple(dict.fromkeys(parse_address(one.strip(), source) for one in urls.split(",")))
    if len(found) > MAX_ADDRESSES:
        raise ConfigError(f"{source}: {len(found)} addresses; name at most {MAX_ADDRESSES}")
    if len({(one.tls, one.user is None) for one in found}) > 1:
        raise ConfigError(
            f"{source}: {text_of(found)}: a client is the same at each address of a cluster; "
            "write all of them with mqtts://, and all with a user or none"
        )
    return found


def text_of(addresses: Sequence[Address]) -> str:
    """Return addresses as people write them, without passwords."""
    return ",".join(map(str, addresses))


def parse_address(url: str, source: str = "broker address") -> Address:
    """Return the address in `url`. Raises `ConfigError` that names `source` and the remedy."""
    hint = "write it as mqtts://HOST:PORT, or on one machine as mqtt://127.0.0.1:1883"
    if _BARE.fullmatch(url):  # `pi:1883`, which would be read as a scheme and a path
        raise ConfigError(
            f"{source}: the scheme is missing; write mqtts://{url}, or mqtt://{url} for a broker "
            "without TLS on this machine"
        )
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(f"{source}: not an address; {hint}") from None
    try:
        default = DEFAULT_TLS_PORT if parts.scheme == "mqtts" else DEFAULT_PORT
        port = default if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise ConfigError(f"{source}: the port is not a number from 1 to 65535; {hint}")
    if parts.scheme not in {"mqtt", "mqtts"}:
        raise ConfigError(f"{source}: the scheme is {parts.scheme or 'missing'!r}; {hint}")
    if not parts.hostname or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ConfigError(f"{source}: no host, or something after it; {hint}")
    return Address(
        parts.hostname,
        port,
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else None,
        parts.scheme == "mqtts",
    )


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine for certain; no name is asked for."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def parse_listen(text: str, source: str, example: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, where a server shall listen."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port[:6]) > 65_535:
        raise ConfigError(
            f"{source}: {text!r} is no address; write it as HOST:PORT, such as {example}"
        )
    return host, int(port)


def check_origins(origins: Sequence[str]) -> None:
    """Raise `ConfigError` for a page that is not written as a browser names it."""
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"--origin {origin}: write it as a browser does, such as https://pi.lan:8080"
            )


def machine_of(address: str) -> str:
    """Return the machine of an address: with IPv6, one /64 counts as one machine."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return f"{int(parsed) >> 64:x}/64"
    return str(parsed)


def why_not_here(error: BaseException | None) -> str:
    """Return the advice for a socket that cannot listen."""
    number = error.errno if isinstance(error, OSError) else None
    # From 3.13 on asyncio tells by an error without a number that none of the addresses is here.
    of_none = isinstance(error, OSError) and number is None
    if of_none or number == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return "it is no address of this machine; 127.0.0.1 is for this machine alone, 0.0.0.0 all"
    if number == errno.EACCES:
        return "ports below 1024 are for root; choose one above"
    return "is another program listening there? choose another port"
