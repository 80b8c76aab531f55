"""`fleet broker config`: the table of rights as the files of a real broker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.errors import ConfigError
from broker.machine import system_clock
from coordinator.cli.words import say

if TYPE_CHECKING:
    from broker.deploy import Ports, Site

DEFAULT_CERTIFICATES = "/etc/fleet/broker"
BROKERS = ("mosquitto", "rabbitmq", "nats")


@click.command("config")
@click.argument("kind", metavar="|".join(BROKERS), type=click.Choice(BROKERS))
@click.option("-o", "--output", metavar="DIR", required=True, type=click.Path(path_type=Path),
              help="Where to write the files.")  # fmt: skip
@click.option(
    "--at", metavar="DIR", help="Where the broker finds them, if not there; a node in /etc."
)
@click.option("--root", metavar="ROOT", help="Topic root.")
@click.option("--person", "people", metavar="NAME", multiple=True,
              help="Somebody: operator:alice, observer:bob. May be repeated.")  # fmt: skip
@click.option("--host", "hosts", metavar="NAME", multiple=True,
              help="A host; RabbitMQ and NATS have to know each. May be repeated.")  # fmt: skip
@click.option("--home", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder that `fleet init` made; whoever was enrolled is known by it.  "
              "[default: ~/.config/fleet]")  # fmt: skip
@click.option("--node", "nodes", metavar="[NAME@]HOST[:PORT]", multiple=True,
              help="A node of a cluster of RabbitMQ or NATS; name each.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65_535), metavar="PORT",
              help="For hosts and the coordinator.  [default: 8883]")  # fmt: skip
@click.option("--people-port", type=click.IntRange(1, 65_535), metavar="PORT",
              help="mosquitto: for people.  [default: 8884]")  # fmt: skip
@click.option("--websocket", type=click.IntRange(1, 65_535), metavar="PORT",
              help="For people's browsers, too.")  # fmt: skip
@click.option("--origin", "origins", multiple=True, metavar="URL",
              help="NATS: a page whose scripts may open a websocket. May be repeated.")  # fmt: skip
@click.option("--certificates", metavar="DIR", default=DEFAULT_CERTIFICATES, show_default=True,
              help="Where ca.crt, broker.crt, broker.key and, if any, crl.pem are.")  # fmt: skip
@click.option("--data", metavar="DIR", help="Where the broker keeps its data.  [default: its own]")
@click.option("--loopback", is_flag=True, help="mosquitto: serve this machine in plain text, too.")
@click.option("--force", is_flag=True, help="Overwrite files that somebody else made.")
@click.pass_context
def config_command(
    ctx: click.Context,
    *,
    kind: str,
    output: Path,
    at: str | None,
    root: str | None,
    people: tuple[str, ...],
    hosts: tuple[str, ...],
    home: Path | None,
    nodes: tuple[str, ...],
    port: int | None,
    people_port: int | None,
    websocket: int | None,
    origins: tuple[str, ...],
    certificates: str,
    data: str | None,
    loopback: bool,
    force: bool,
) -> int:
    """Write the files of a broker that lets everybody do what is theirs, and nothing else.

    It asks everybody for a certificate of the fleet's CA. Its common name is who they are: a host,
    coordinator, operator:NAME, observer:NAME or homeassistant. Whom `fleet enroll` gave one here is
    known; others are named. docs/brokers.md has a recipe for each broker.

    \b
    Example:
      fleet broker config mosquitto -o /etc/mosquitto --person operator:alice
    """  # noqa: D301 - \b is click's
    from broker.deploy import DATA, Node, Site
    from broker.settings import BrokerSettings
    from broker.topics import Topics

    where = ctx.find_root().obj or {}
    settings = BrokerSettings.load(
        Path(where["config"]) if where.get("config") else None,
        {"topic_root": root or where.get("root")},
    )
    folder = Path(certificates).expanduser().absolute()
    known = _registered(home)
    site = Site(
        folder=Path(at) if at else _usual(kind, output, cluster=bool(nodes)),
        certificates=folder,
        state=Path(data).absolute() if data else Path(DATA[kind]),
        topics=Topics(settings.topic_root),
        people=(*people, *known.people),
        hosts=(*hosts, *known.hosts),
        denied=known.denied,
        loopback=loopback,
        revoked=(folder / "crl.pem").is_file(),
        ports=_ports(kind, port, people_port, websocket),
        origins=origins,
        nodes=tuple(map(Node.parse, nodes)),
    )
    _write(kind, site, output, force=force)
    _remark(kind, site)
    return 0


@dataclass(frozen=True, slots=True)
class Registered:
    """Who was enrolled: people and hosts whose certificate holds, and hosts that were revoked."""

    people: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


def _registered(home: Path | None) -> Registered:
    """Return who is in the CA's registry; nobody where there is none and none was named."""
    from broker.ca import REGISTRY_FILE, issued_in
    from broker.deploy.site import FIXED
    from broker.topics import is_host, is_user
    from coordinator.cli.certificates import home_of

    folder = home_of(home) / "ca"
    if home is None and not (folder / REGISTRY_FILE).exists():
        return Registered()
    now_s = system_clock().wall_s
    issued = issued_in(folder)
    holding = {one.name for one in issued if one.holds(now_s)}
    revoked = {one.name for one in issued if one.revoked_s is not None} - holding
    fixed = {who.name for who in FIXED}
    return Registered(
        tuple(sorted(name for name in holding - fixed if is_user(name))),
        tuple(sorted(name for name in holding if is_host(name))),
        tuple(sorted(name for name in revoked if is_host(name) or is_user(name))),
    )


def _ports(kind: str, port: int | None, people_port: int | None, websocket: int | None) -> Ports:
    from broker.deploy import Ports

    if people_port is not None and kind != "mosquitto":
        raise ConfigError("--people-port: only mosquitto has a port of people's own; take --port")
    usual = Ports()
    return Ports(hosts=port or usual.hosts, people=people_port or usual.people, websocket=websocket)


def _usual(kind: str, output: Path, *, cluster: bool) -> Path:
    """Return where a broker finds its files; those of a cluster's nodes are to be carried there."""
    return Path(f"/etc/{kind}") if cluster else output.expanduser().absolute()


def _write(kind: str, site: Site, output: Path, *, force: bool) -> None:
    """Write the files, a cluster's into a folder for each node, and tell which have changed."""
    from broker.deploy import RENDERERS, write

    for node in site.nodes or (None,):
        folder = output / node.called if node else output
        files = RENDERERS[kind](replace(site, node=node))
        changed = write(folder, files, force=force)
        for name in files:
            word = "written" if folder / name in changed else "is current"
            say(f"{folder / name}: {word}")
        if node:
            say(f"  for {node.host}: goes to {site.folder} there")


def _remark(kind: str, site: Site) -> None:
    """Tell what the files lack."""
    if not site.revoked:
        say(
            f"{site.certificates / 'crl.pem'}: is not there, so nobody can be revoked; copy the "
            "folder `broker` that `fleet init` made there, and run this again",
            err=True,
        )
    if not site.people:
        say(
            "nobody may look at the fleet or command it; name people with --person, or with "
            "--home the folder where they were enrolled",
            err=True,
        )
    if kind != "mosquitto" and not site.hosts:
        say("no host gets in; name each with --host, or --home", err=True)
