"""`fleet doctor` of a coordinator: will it work here? `python -m coordinator.doctor --help`.

A line a check, each with its remedy. Nothing is changed, and nothing waits for ever.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from broker.checks import check_clock, check_lock, check_memory, check_python, check_state
from broker.errors import ConfigError
from broker.findings import Finding, fail, ok, tell, warn
from broker.machine import system_clock
from broker.reach import check_broker
from broker.settings import BrokerSettings
from broker.trainers import OwnTrainer, load_trainers
from coordinator.builtin import builtin_trainers
from coordinator.manifest import ManifestError, load_manifest
from coordinator.settings import CoordinatorSettings, HomeAssistantSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Check this machine; return 0 when nothing fails, 1 when something does."""
    arguments = _parser().parse_args(argv)
    return tell("coordinator", findings(arguments), sys.stdout, as_json=arguments.json)


def findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Check one thing after the other."""
    yield check_python()
    yield check_memory()
    yield check_clock(system_clock())
    settings, broker = None, None
    own: dict[str, OwnTrainer] = {}
    try:
        settings = CoordinatorSettings.load(
            arguments.config, {"state": arguments.state, "manifest": arguments.manifest}
        )
        broker = BrokerSettings.load(
            arguments.config,
            {
                "url": arguments.broker,
                "topic_root": arguments.root,
                "identity": arguments.identity,
                "plain": arguments.plain or None,
            },
        )
        own = load_trainers(arguments.config, builtin_trainers(), programs=False)
        HomeAssistantSettings.load(arguments.config)
    except ConfigError as error:
        for line in str(error).splitlines():
            yield fail("config", line, "etc/fleet.toml.example explains every key")
    running = False
    if settings is not None:
        yield from check_state(settings.state)
        lock, running = check_lock(settings.state, "coordinator")
        yield lock
        yield check_manifest(settings.manifest, own)
    if broker is not None:
        # A broker that takes its clients' names from certificates would throw the running one off.
        yield from check_broker(
            broker, None, system_clock().wall_s, named=True, session=not running
        )


def check_manifest(path: Path | None, own: dict[str, OwnTrainer]) -> Finding:
    """Tell whether the plan can be read; trainers that only hosts know are not known here."""
    if path is None:
        remedy = "set `manifest` in [coordinator] to have jobs"
        return warn("manifest", "none is named: only what is in the ledger is served", remedy)
    schemas = {name: trainer.hyper_schema for name, trainer in own.items()}
    try:
        plan = load_manifest(path, {**builtin_trainers(), **schemas})
    except ManifestError as error:
        more = len(error.problems) - 1
        text = str(error).splitlines()[0] + (f" (and {more} more)" if more else "")
        return fail("manifest", text, f"`fleet check {path}` tells all")
    return ok("manifest", f"{path}: {len(plan.jobs)} jobs")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--broker", help="mqtt://HOST:PORT")
    parser.add_argument("--root", help="topic root")
    parser.add_argument("--identity", type=Path, help="folder of the certificate, for mqtts")
    parser.add_argument("--plain", action="store_true", help="no TLS beyond this machine")
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--state", type=Path, help="folder of the ledger and the artifact store")
    parser.add_argument("--manifest", type=Path, help="the plan")
    return parser


if __name__ == "__main__":
    sys.exit(main())
