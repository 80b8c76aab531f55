"""`fleet broker config`: the table of rights as the files of a real broker."""

from __future__ import annotations

from pathlib import Path

import click

DEFAULT_CERTIFICATES = "/etc/fleet/broker"
BROKERS = ("mosquitto", "rabbitmq", "nats")


@click.command("config")
@click.argument("kind", metavar="|".join(BROKERS), type=click.Choice(BROKERS))
@click.option("-o", "--output", metavar="DIR", required=True, type=click.Path(path_type=Path),
              help="Where to write the files.")  # fmt: skip
@click.option("--at", metavar="DIR", help="Where the broker finds them, if not there.")
@click.option("--root", metavar="ROOT", help="Topic root.")
@click.option("--person", "people", metavar="NAME", multiple=True,
              help="Somebody: operator:alice, observer:bob. May be repeated.")  # fmt: skip
@click.option("--host", "hosts", metavar="NAME", multiple=True,
              help="A host; RabbitMQ and NATS have to know each. May be repeated.")  # fmt: skip
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
    certificates: str,
    data: str | None,
    loopback: bool,
    force: bool,
) -> int:
    """Write the files of a broker that lets everybody do what is theirs, and nothing else.

    It asks everybody for a certificate of the fleet's CA. Its common name is who they are: a host,
    coordinator, operator:NAME, observer:NAME or homeassistant. docs/brokers.md has a recipe for
    each broker.

    Example: fleet broker config mosquitto -o /etc/mosquitto --person operator:alice
    """
    from broker.deploy import DATA, RENDERERS, Site, write
    from broker.settings import BrokerSettings
    from broker.topics import Topics

    where = ctx.find_root().obj or {}
    settings = BrokerSettings.load(
        Path(where["config"]) if where.get("config") else None,
        {"topic_root": root or where.get("root")},
    )
    folder = Path(certificates).expanduser().absolute()
    site = Site(
        folder=Path(at) if at else output.expanduser().absolute(),
        certificates=folder,
        state=Path(data).absolute() if data else Path(DATA[kind]),
        topics=Topics(settings.topic_root),
        people=people,
        hosts=hosts,
        loopback=loopback,
        revoked=(folder / "crl.pem").is_file(),
    )
    files = RENDERERS[kind](site)
    changed = write(output, files, force=force)
    for name in files:
        word = "written" if output / name in changed else "is current"
        click.echo(f"{output / name}: {word}")
    if not site.revoked:
        click.echo(
            f"{folder / 'crl.pem'}: is not there, so nobody can be revoked; copy the folder "
            "`broker` that `fleet init` made there, and run this again",
            err=True,
        )
    if not people:
        click.echo(
            "nobody may look at the fleet or command it; name people with --person", err=True
        )
    if kind != "mosquitto" and not hosts:
        click.echo("no host gets in; name each with --host", err=True)
    return 0
