"""`fleet doctor` of a coordinator: will it work here? `python -m coordinator.doctor --help`.

A line a check, each with its remedy. Nothing is changed, and nothing waits for ever.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from broker import private
from broker.ca import KEY_FILE, Authority
from broker.checks import check_clock, check_lock, check_memory, check_python, check_state
from broker.errors import ConfigError, plain
from broker.findings import Finding, fail, ok, tell, warn
from broker.machine import system_clock
from broker.options import add_options
from broker.reach import check_broker
from broker.trainers import OwnTrainer
from coordinator.builtin import builtin_trainers
from coordinator.loading import load
from coordinator.manifest import ManifestError, load_manifest


def main(argv: Sequence[str] | None = None) -> int:
    """Check this machine; return 0 when nothing fails, 1 when something does."""
    arguments = _parser().parse_args(argv)
    return tell("coordinator", findings(arguments), sys.stdout, as_json=arguments.json)


def findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Check one thing after the other."""
    yield check_python()
    yield check_memory()
    yield check_clock(system_clock())
    found = load(arguments)
    settings, broker, own = found.settings, found.broker, found.own
    for line in found.faults.lines:
        yield fail("config", line, "etc/fleet.toml.example explains every key")
    running = False
    if settings is not None:
        yield from check_state(settings.state)
        lock, running = check_lock(settings.state, "coordinator")
        yield lock
        yield check_manifest(settings.manifest, own)
        yield check_ca(settings.ca)
    if broker is not None:
        # A broker that takes its clients' names from certificates would throw the running one off.
        yield from check_broker(
            broker, None, system_clock().wall_s, named=True, session=not running
        )


def check_ca(folder: Path | None) -> Finding:
    """Tell whether the coordinator can renew the hosts' certificates."""
    if folder is None:
        remedy = "name the CA's folder by `ca` in [coordinator], or --ca, where hosts use mqtts"
        return ok("ca", f"none is named: no certificate is renewed; {remedy}")
    try:
        authority = Authority(folder)
        private.check_secret(folder / KEY_FILE)
        issued = authority.issued()
    except (ConfigError, OSError) as error:
        return fail("ca", plain(error), "docs/identity.md tells where it is")
    if not os.access(folder, os.W_OK):
        remedy = "let the user that the coordinator runs as write there"
        return fail("ca", f"{folder}: cannot be written to", remedy)
    return ok("ca", f"{folder}: {len(issued)} certificates were issued")


def check_manifest(path: Path | None, own: Mapping[str, OwnTrainer]) -> Finding:
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
        return fail("manifest", text, f"`fleet check {shlex.quote(str(path))}` tells all")
    return ok("manifest", f"{path}: {len(plan.jobs)} jobs")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_options(parser)
    parser.add_argument("--state", type=Path, help="folder of the ledger and the artifact store")
    parser.add_argument("--manifest", type=Path, help="the plan")
    parser.add_argument("--ca", type=Path, help="folder of the CA, to renew hosts' certificates")
    return parser


if __name__ == "__main__":
    sys.exit(main())
