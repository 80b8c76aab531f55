"""`fleet broker config`: the table of rights as the files of a real broker."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from broker.errors import ConfigError
from broker.system.machine import system_clock
from coordinator.ui.options import PATH, PORT, Where, flag, option, where
from coordinator.ui.words import say

if TYPE_CHECKING:
    from broker.deploy import Ports, Site
    from broker.system.settings import BrokerSettings

DEFAULT_CERTIFICATES = "/etc/fleet/broker"
# What its service is called in the packages of Debian; it runs as the user of its own name.
_SERVICES = {"mosquitto": "mosquitto", "rabbitmq": "rabbitmq-server", "nats": "nats-server"}
BROKERS = tuple(_SERVICES)
CRL = "crl.pem"
_CERTIFICATES = ("ca.crt", "broker.crt", "broker.key")


@click.command("config")
@click.argument("kind", metavar="|".join(BROKERS), type=click.Choice(BROKERS))
@option("-o --output", "DIR", "Where to write the files.", required=True, type=PATH)
@option("--at placed", "DIR", "Where the broker finds them, if not there; a node in /etc.")
@where("root")
@option("--person people", "NAME",
        "Somebody: operator:alice, observer:bob. May be repeated.", multiple=True)  # fmt: skip
@option("--host hosts", "NAME",
        "A host; RabbitMQ and NATS have to know each. May be repeated.", multiple=True)  # fmt: skip
@click.option("--home", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder that `fleet init` made; whoever was enrolled is known by it.  "
              "[default: ~/.config/fleet]")  # fmt: skip
@option("--node nodes", "[NAME@]HOST[:PORT]",
        "A node of a cluster of RabbitMQ or NATS; name each.", multiple=True)  # fmt: skip
@option("--port", "PORT", "For hosts and the coordinator.  [default: 8883]", type=PORT)
@option("--people-port", "PORT", "mosquitto: for people.  [default: 8884]", type=PORT)
@option("--websocket", "PORT", "For people's browsers, too.", type=PORT)
@click.option("--origin", "origins", multiple=True, metavar="URL",
              help="NATS: a page whose scripts may open a websocket. May be repeated.")  # fmt: skip
@option("--certificates", "DIR", "Where ca.crt, broker.crt, broker.key and, if any, crl.pem are.",
        default=DEFAULT_CERTIFICATES, show_default=True)  # fmt: skip
@option("--data", "DIR", "Where the broker keeps its data.  [default: its own]")
@flag("--loopback", "mosquitto: serve this machine in plain text, too.")
@flag("--force", "Overwrite files that somebody else made.")
def config_command(at: Where, kind: str, output: Path, home: Path | None, **options: Any) -> int:
    """Write the files of a broker that lets everybody do what is theirs, and nothing else.

    It asks everybody for a certificate of the fleet's CA. Its common name is who they are: a host,
    coordinator, operator:NAME, observer:NAME or homeassistant. Whom `fleet enroll` gave one here is
    known; others are named. docs/reference/brokers.md has a recipe for each broker.

    \b
    Example:
      fleet broker config mosquitto -o /etc/mosquitto --person operator:alice
    """  # noqa: D301 - \b is click's
    from broker.deploy import DATA, Node, Ports, Site
    from broker.protocol.topics import Topics
    from broker.system.settings import BrokerSettings, expanded
    from coordinator.cli.ca_folder import home_of

    output = expanded(output)
    base = home_of(home)
    settings = BrokerSettings.load(at.config, {"topic_root": at.root})
    if options["people_port"] is not None and kind != "mosquitto":
        raise ConfigError("--people-port: only mosquitto has a port of people's own; take --port")
    folder = _rooted(expanded(Path(options["certificates"])))
    people, hosts, denied = _registered(base / "ca", is_named=home is not None)
    nodes = tuple(map(Node.parse, options["nodes"]))
    # The files of a cluster's nodes are to be carried there.
    usual = f"/etc/{kind}" if nodes else output.absolute()
    ports = Ports()
    site = Site(
        folder=_there(options["placed"] or usual),  # a relative one is refused
        certificates=_there(folder),
        state=_there(_rooted(options["data"] or DATA[kind])),
        topics=Topics(settings.topic_root),
        people=(*options["people"], *people),
        hosts=(*options["hosts"], *hosts),
        denied=denied,
        loopback=options["loopback"],
        revoked=_has_list(folder, base / "broker"),
        ports=Ports(
            hosts=options["port"] or ports.hosts,
            people=options["people_port"] or ports.people,
            websocket=options["websocket"],
        ),
        origins=options["origins"],
        nodes=nodes,
    )
    _write(kind, site, output, force=options["force"])
    if not site.people:
        say(
            "nobody may look at the fleet or command it; name people with --person, or with "
            "--home the folder where they were enrolled",
            err=True,
        )
    if kind != "mosquitto" and not site.hosts:
        say("no host gets in; name each with --host, or --home", err=True)
    _tell_ports(kind, site.ports, base, settings)
    _tell_steps(kind, site, base / "broker", output)
    return 0


def _rooted(path: str | Path) -> Path:
    return Path(path) if Path(path).root else Path(path).absolute()


def _there(path: str | Path) -> PurePath:
    """Return a path on the broker's machine: without a drive it is not one of Windows."""
    return Path(path) if Path(path).drive else PurePosixPath(Path(path).as_posix())


def _registered(
    folder: Path, *, is_named: bool
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return people and hosts whose certificate holds by the CA's registry, and who was revoked.

    Nobody where there is no registry and none was named.
    """
    from broker.deploy.site import FIXED
    from broker.pki.ca import REGISTRY_FILE, issued_in
    from broker.protocol.topics import is_host, is_user

    if not is_named and not (folder / REGISTRY_FILE).exists():
        return (), (), ()
    now_s = system_clock().wall_s
    issued = issued_in(folder)
    holding = {one.name for one in issued if one.holds(now_s)}
    revoked = {one.name for one in issued if one.revoked_s is not None} - holding
    fixed = {who.name for who in FIXED}
    return (
        tuple(sorted(name for name in holding - fixed if is_user(name))),
        tuple(sorted(name for name in holding if is_host(name))),
        tuple(sorted(name for name in revoked if is_host(name) or is_user(name))),
    )


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


def _tell_ports(kind: str, ports: Ports, home: Path, settings: BrokerSettings) -> None:
    """Say at which port people are served, and keep it where the CA is, with their addresses."""
    from broker.pki.ca import REGISTRY_FILE
    from broker.system.address import parse_addresses
    from coordinator.cli.ca_folder import write_ports

    people = ports.people if kind == "mosquitto" else ports.hosts
    is_kept = (home / "ca" / REGISTRY_FILE).exists()
    if is_kept:
        write_ports(home, ports.hosts, people)
    if people != ports.hosts:
        how = "the identities here, and those that `fleet enroll` makes, say so from now on; "
        say(
            f"hosts and the coordinator connect to port {ports.hosts}, people's programs to "
            f"{people}, since at the other one two programs of one person end each other's "
            f"connection: {(how + 'elsewhere ') * is_kept}write it into `broker.url` beside a "
            "person's identity"
        )
    addresses = parse_addresses(settings.url)
    if addresses[0].tls and any(one.port != people for one in addresses):
        say(
            f"{settings.url} is set for this machine, for people's programs too, which connect to "
            f"port {people}: take `url` out of [broker] (or FLEET_BROKER away), and each "
            "identity's own address counts",
            err=True,
        )


def _has_list(folder: Path, made: Path) -> bool:
    """Whether the broker will find a CRL in its folder, now or once that was copied there."""
    if (folder / CRL).is_file() or any((folder / name).exists() for name in _CERTIFICATES):
        return (folder / CRL).is_file()
    return all((made / name).is_file() for name in (*_CERTIFICATES, CRL))


def _tell_steps(kind: str, site: Site, made: Path, output: Path) -> None:
    """Say how the certificates, and files that are written elsewhere, get to where they are read.

    `made` is the folder that `fleet init` has made for the broker.
    """
    folder, there = Path(site.certificates), site.certificates
    needed = (*_CERTIFICATES, CRL) if kind == "mosquitto" else _CERTIFICATES
    missing = [name for name in needed if not (folder / name).is_file()]
    if not missing:
        return
    lacks = "nobody can be revoked" if missing == [CRL] else "the broker does not start"
    say(f"\n{there} has no {', '.join(missing)} yet: {lacks}. On the broker's machine:", err=True)
    steps = []
    if not all((made / name).is_file() for name in needed):
        steps.append(
            f"`fleet init --broker NAME` on the CA's machine makes them, in {made} there (NAME: by "
            "which hosts reach the broker)"
        )
    if folder != made:
        source, target = shlex.quote(str(made)), shlex.quote(str(there))
        public = " ".join(f"{source}/{name}" for name in needed if name != "broker.key")
        steps.append(
            f"copy them to {there}, from another machine first to this one (scp -r); {kind}, as "
            "whom the broker runs, has to read them, and nobody else its key:\n"
            f"  sudo install -d -m 755 {target}\n"
            f"  sudo install -o {kind} -m 644 {public} {target}\n"
            f"  sudo install -o {kind} -m 400 {source}/broker.key {target}"
        )
    if kind == "mosquitto" and not site.revoked:
        steps.append(f"run this command again: the files name {CRL} once it is there")
    if site.nodes or Path(site.folder) != output.absolute():
        steps.append(f"copy what was written into {output} to {site.folder}")
    steps.append(f"have the broker read all of it:\n  sudo systemctl restart {_SERVICES[kind]}")
    for number, step in enumerate(steps, 1):
        words, *commands = step.split("\n")
        say(f"  {number}. {words}", err=True, indent=3)
        for command in commands:
            click.echo(f"     {command}", err=True)
