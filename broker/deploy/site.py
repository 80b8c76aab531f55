"""What a broker's files are made for: topics, people, hosts, folders, ports and nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final

from broker.errors import ConfigError
from broker.protocol.acl import Principal
from broker.protocol.messages import MAX_CHUNK_BYTES
from broker.protocol.topic_table import Role
from broker.protocol.topics import MAX_TOPIC_CHARS, Topics, is_host, is_user
from broker.system.address import check_origins
from broker.system.files import RealDisk, write_atomically

MADE_BY: Final = "Made by `fleet broker config`"
HEAD: Final = f"{MADE_BY}, which would overwrite changes; docs/reference/brokers.md tells how."
# The largest packet: a chunk, its topic (UTF-8 of the tree is ASCII) and the headers of MQTT.
MAX_PACKET_BYTES: Final = MAX_CHUNK_BYTES + MAX_TOPIC_CHARS + 512
MIN_NODES: Final = 3
FIXED: Final = (
    Principal(Role.COORDINATOR, "coordinator"),
    Principal(Role.HOMEASSISTANT, "homeassistant"),
)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a broker listens: TLS for hosts, TLS for people, plain on loopback.

    A broker with one listener has that of the hosts; `nats` is NATS's own protocol, `websocket` for
    browsers, over TLS.
    """

    hosts: int = 8883
    people: int = 8884
    loopback: int = 1883
    nats: int = 4222
    websocket: int | None = None

    def __post_init__(self) -> None:
        for port in (self.hosts, self.people, self.loopback, self.nats, self.websocket):
            if port is not None and not 1 <= port <= 65_535:
                raise ConfigError(f"port {port}: is not from 1 to 65535")
        if self.websocket in {self.hosts, self.people}:
            raise ConfigError(f"--websocket {self.websocket}: is another listener's; take another")


@dataclass(frozen=True, slots=True)
class Node:
    """One broker of a cluster: its machine, its name and its port (0: the usual one)."""

    host: str
    name: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Node:
        """Return the node that is written `[NAME@]HOST[:PORT]`. Raises `ConfigError`."""
        found = _NODE.fullmatch(text)
        if found is None or int(found[3] or 1) not in range(1, 65_536):
            raise ConfigError(
                f"--node {text}: write it as HOST, NAME@HOST or HOST:PORT, such as a.lan"
            )
        return cls(found[2], found[1] or "", int(found[3] or 0))

    @property
    def called(self) -> str:
        """What tells it from the others; its folder is called so."""
        return self.name or self.host


_NODE: Final = re.compile(
    r"(?:([a-z0-9_-]+)@)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::([0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Site:
    """A fleet as its broker has to know it.

    `folder` is where the broker finds its files, `certificates` where ca.crt, broker.crt and
    broker.key are (and crl.pem where `revoked`), `state` its data. `denied` are revoked names that
    may still be connected. `loopback`: serve this machine in plain text, without names. `origins`
    are the pages whose scripts may open a websocket. `nodes` are those of a cluster; the files are
    for `node`.
    """

    folder: PurePath
    certificates: PurePath
    state: PurePath
    topics: Topics = field(default_factory=Topics)
    people: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    loopback: bool = False
    revoked: bool = False
    ports: Ports = field(default_factory=Ports)
    origins: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    node: Node | None = None

    def __post_init__(self) -> None:
        for name in self.people:
            if not is_user(name) or Principal.parse(name) in FIXED:
                raise ConfigError(
                    f"--person {name}: write it as operator:NAME or observer:NAME, "
                    "in small letters, such as operator:alice"
                )
        for name in self.hosts:
            if not is_host(name):
                raise ConfigError(
                    f"--host {name}: is no host's name; write gaming-pc, say, not fleet-pc"
                )
        for path in (self.folder, self.certificates, self.state):
            if not path.is_absolute():
                raise ConfigError(f"folder {path}: must be absolute, since a broker starts in '/'")
            if any(char in '"\\$#' or not char.isprintable() for char in path.as_posix()):
                raise ConfigError(
                    f"folder {str(path)!r}: has a character that a broker's file cannot bear; "
                    "use a plain one"
                )
        check_origins(self.origins)
        if self.nodes and len({one.called for one in self.nodes}) < MIN_NODES:
            raise ConfigError(
                f"--node: a cluster needs {MIN_NODES} nodes with different names, so that two are "
                "left when one is lost; name each"
            )

    def refuse(
        self, broker: str, *, loopback: bool = False, origins: bool = False, dots: bool = False
    ) -> None:
        """Raise `ConfigError` for what `broker` cannot do.

        A plain listener; to look where a page is from; a dot, which parts a topic's levels there.
        """
        if loopback and self.loopback:
            raise ConfigError(
                f"--loopback: {broker} asks everybody for a certificate; leave it out, "
                "or take mosquitto"
            )
        if origins and self.origins:
            raise ConfigError(
                f"--origin: {broker} does not look where a page is from; leave it out, or take NATS"
            )
        names = (*(who.name for who in self.principals()), *self.topics.root.split("/"))
        if dotted := [name for name in names if dots and "." in name]:
            raise ConfigError(
                f"{dotted[0]}: {broker} has no topics with a dot in them; "
                "use another name, or take mosquitto"
            )

    def tls_files(self) -> dict[str, str]:
        """Return the paths of the certificates as a broker's file names them."""
        names = {"ca": "ca.crt", "certificate": "broker.crt", "key": "broker.key"}
        return {key: (self.certificates / name).as_posix() for key, name in names.items()}

    def principals(self) -> tuple[Principal, ...]:
        """Return everybody who is known by name: the coordinator, Home Assistant, people, hosts."""
        names = (*sorted({*self.people}), *sorted({*self.hosts}))
        return (*FIXED, *map(Principal.parse, names))


def write(folder: Path, files: Mapping[str, str], *, force: bool = False) -> list[Path]:
    """Write the files, all or none, and return the paths of those that changed.

    Raises `ConfigError` for a file that somebody else made, unless `force`.
    """
    changed = {folder / name: text for name, text in files.items() if _old(folder / name) != text}
    for path in changed:
        old = _old(path)
        if old is not None and MADE_BY not in old and not force:
            raise ConfigError(
                f"{path}: is there already and was not made by this command; "
                "write elsewhere with -o, or overwrite it with --force"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in changed.items():
        write_atomically(RealDisk(), path.resolve(), text.encode())
    return list(changed)


def _old(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
