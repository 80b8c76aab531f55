"""`fleet up`: broker, coordinator and agents on this machine, as child processes."""

from __future__ import annotations

import os
import platform
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from broker.doctor.findings import Level
from broker.errors import ConfigError, LocalError
from broker.protocol.topics import is_host
from broker.system.address import DEFAULT_URL, parse_addresses, text_of
from broker.system.files import FolderLock
from broker.system.settings import OPERATOR_KEY, BrokerSettings, find_config, read_section
from coordinator.cli.serve import arguments_of
from coordinator.ui.options import PATH, Where, flag, json_option, option, where_options
from coordinator.ui.processes import Fleet
from coordinator.ui.progress import waiting
from coordinator.ui.words import is_json, say

READY_TIMEOUT_S: Final = 150.0  # the first import of torch takes its time on a slow disk


@click.command("up")
@option("--agents", "N",
        "How many agents.", type=click.IntRange(0, 64), default=1, show_default=True)  # fmt: skip
@option("--manifest", "FILE", "The plan.", type=PATH)
@option("--data", "DIR", "Folder of the prepared data.", type=PATH)
@option("--state", "DIR", "Where everything is kept.",
        type=PATH, default=Path(".fleet"), show_default=True)  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65_535), default=1883, show_default=True,
              help="Port of the embedded broker; 0 takes a free one.")  # fmt: skip
@option("--prefer-cuda-grace", "SECONDS", "Overrides the plan's.", type=click.FloatRange(0, 1e7))
@option("--heartbeat", "SECONDS", "Time between heartbeats.",
        type=click.FloatRange(0.2, 3600), default=5.0, show_default=True)  # fmt: skip
@option("--host-prefix", "NAME", "Agents are NAME-1, NAME-2, ...")
@flag("--until-idle", "End when nothing is left that could run, with a table of results.")
@json_option
@where_options
def up_command(at: Where, until_idle: bool, **options: Any) -> int:
    """Run a whole fleet on this machine: broker, coordinator, agents.

    With --broker (or FLEET_BROKER) that broker is used and none is started, which is said first,
    and so is what it answers if it refuses; a broker that the configuration file names is left
    alone, and nothing listens at its `metrics` and `websocket`.
    Ctrl-C stops everything cleanly; a second one at once.

    With --until-idle, exit code 0: what could run has; jobs that no host here can run may be left,
    and it is said why. 1: a job failed. 5: jobs are left, and none was done. With --json each job
    that is left has `waits` and `would_help`.

    \b
    Examples:
      fleet up --manifest plan.toml --data .demo/data
      fleet up --agents 2 --manifest plan.toml --data .demo/data --until-idle
    """  # noqa: D301 - \b is click's
    settings, source = _broker(at)
    for name in ("manifest", "data"):
        path = options[name]
        if path is not None and not path.exists():
            raise ConfigError(f"--{name} {path}: there is no such file or folder")
    data = options["data"]
    if data is not None and not (data / "feature_schema_v1.json").is_file():
        raise ConfigError(
            f"--data {data}: holds no prepared data; `python -m agent.trainer.prepare --help` says "
            "how it is made"
        )
    hosts = _hosts(options)
    if source is not None:
        _use(settings, source, at.config, aside=is_json())
    state = options["state"].resolve()
    lock = FolderLock(state, "`fleet up`")  # before its logs are written to
    environment = {**os.environ, "FLEET_TOPIC_ROOT": settings.topic_root}
    environment.pop(OPERATOR_KEY, None)  # the coordinator alone is given it
    fleet = Fleet(state, environment)
    stopping = _Interrupts(fleet)
    try:
        settings = _start(fleet, options, at.config, settings, hosts, own_broker=source is None)
        from coordinator.ui.up_live import until_stopped, watch_until_idle

        if not until_idle:
            return until_stopped(fleet, settings, state, _lacks(options, at.config))
        return watch_until_idle(fleet, settings, hosts)
    except KeyboardInterrupt:
        click.echo("stopping ...", err=True)
        return 130 if until_idle else 0
    finally:
        stopping.twice()
        fleet.stop()
        lock.release()


class _Interrupts:
    """The first Ctrl-C or SIGTERM stops cleanly, the second ends everything at once."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        signal.signal(signal.SIGINT, self._first)
        signal.signal(signal.SIGTERM, self._first)

    def twice(self) -> None:
        """From now on, an interrupt does not wait."""
        signal.signal(signal.SIGINT, self._second)
        signal.signal(signal.SIGTERM, self._second)

    def _first(self, *_: object) -> None:
        self.twice()
        raise KeyboardInterrupt

    def _second(self, *_: object) -> None:
        self._fleet.kill()
        os._exit(130)


def _broker(at: Where) -> tuple[BrokerSettings, str | None]:
    """Return the broker's settings and what names it; none where `up` starts its own.

    The broker of the configuration file is never used: a real fleet may run there.
    """
    given = at.broker or os.environ.get("FLEET_BROKER") or None
    settings = at.settings(given or DEFAULT_URL)
    if given is None:
        return settings, None
    source = "--broker" if at.broker else "FLEET_BROKER"
    context = click.get_current_context()
    if context.get_parameter_source("port") is ParameterSource.COMMANDLINE:
        raise click.UsageError(
            f"--port is of a broker of its own, and {source} names another; {_instead(source)}",
            context,
        )
    return settings, source


def _instead(source: str) -> str:
    away = "without --broker" if source == "--broker" else "`unset FLEET_BROKER`, and"
    return f"{away} `fleet up` starts one of its own"


def _use(settings: BrokerSettings, source: str, config: Path | None, *, aside: bool) -> None:
    """Say whose broker is used, and try it as the coordinator will. Raises `LocalError`."""
    from broker.client.access import COORDINATOR
    from broker.doctor.reach import check_broker, check_session

    # What a program reads is not disturbed.
    say(f"using the broker of {source}: {text_of(parse_addresses(settings.url))}", err=aside)
    # Each program has its own identity, whatever is that of this verb: see `_start`.
    environment = {name: text for name, text in os.environ.items() if name != "FLEET_IDENTITY"}
    said = {"url": settings.url, "topic_root": settings.topic_root, "plain": settings.plain}
    own = BrokerSettings.load(config, said, environment)
    session = partial(check_session, settings=own, name="coordinator")
    with waiting("trying the broker"):
        found = [*check_broker(own, COORDINATOR, session)]
    for one in found:
        if one.level is Level.FAIL:
            raise LocalError(
                f"the broker of {source} does not do for a fleet: {one.text}\n"
                f"{one.remedy}; or {_instead(source)}"
            )


def _start(
    fleet: Fleet,
    options: dict[str, Any],
    config: Path | None,
    settings: BrokerSettings,
    hosts: list[str],
    *,
    own_broker: bool,
) -> BrokerSettings:
    if own_broker:
        listen = f"127.0.0.1:{options['port']}"
        # The file's other doors are the fleet proper's, which may be open on this machine.
        child = fleet.start("broker", "broker.embedded", ["--listen", listen, "--no-websocket"])
        try:
            with waiting("starting the broker"):
                port = child.wait_ready(READY_TIMEOUT_S)["port"]
        except LocalError as error:
            raise LocalError(f"{error}\ntry another --port, or --port 0 for a free one") from None
        settings = settings.model_copy(update={"url": f"mqtt://127.0.0.1:{port}"})
        # Whoever may ask that broker is a user of this machine.
        fleet.environment["FLEET_UNSIGNED_PROGRAMS"] = "true"
    fleet.environment["FLEET_BROKER"] = settings.url
    fleet.environment["FLEET_PLAIN"] = str(settings.plain)
    fleet.environment.pop("FLEET_IDENTITY", None)  # each program has its own
    key = {OPERATOR_KEY: os.environ[OPERATOR_KEY]} if OPERATOR_KEY in os.environ else {}
    said: dict[str, Any] = {"config": config, "state": fleet.state / "coordinator"}
    said |= {name: options[name] for name in ("manifest", "prefer_cuda_grace")}
    # Whoever is at the terminal mends the manifest; an old plan is not what was asked for.
    arguments = ["--no-metrics", "--no-last-good", *arguments_of(said)]
    children = [fleet.start("coordinator", "coordinator.service", arguments, key)]
    threads = max(1, (os.cpu_count() or 1) // max(1, options["agents"]))
    for host in hosts:
        said = {"config": config, "state": fleet.state / host, "host": host, "threads": threads}
        said |= {name: options[name] for name in ("data", "heartbeat")}
        children.append(fleet.start(f"agent {host}", "agent.service", arguments_of(said)))
    for child in children:
        with waiting(f"starting the {child.name}"):
            child.wait_ready(READY_TIMEOUT_S)
    return settings


def _lacks(options: dict[str, Any], config: Path | None) -> list[str]:
    """Return a line for each thing that nobody has named and no job is done without."""
    file = find_config(config, os.environ)
    lines = []
    for name, section, lack in (
        ("manifest", "coordinator", "none, so no job is there; name a plan with --manifest"),
        ("data", "agent", "none: name prepared data with --data, if trainers are to read some"),
    ):
        if options[name] is None and not (file and read_section(file, section).get(name)):
            lines.append(f"{name:<13}{lack}")
    return lines


def _hosts(options: dict[str, Any]) -> list[str]:
    """Return the agents' names: after the prefix, or this machine's name made fit for a topic."""
    own = re.sub(r"[^a-z0-9-]+", "-", platform.node().split(".")[0].lower()).strip("-")[:40]
    prefix = options["host_prefix"] or own or "host"
    names = [f"{prefix}-{number + 1}" for number in range(options["agents"])]
    if not all(map(is_host, names)):
        raise ConfigError(f"--host-prefix {prefix}: use lower-case letters, digits, '.', '_', '-'")
    return names
