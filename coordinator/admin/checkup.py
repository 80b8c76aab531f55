"""`fleet doctor` of a coordinator: a line a check, each with its remedy. Nothing is changed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from broker.client.access import COORDINATOR
from broker.doctor.checks import check_lock, check_machine, check_state
from broker.doctor.findings import Finding, at_fault, fail, ok, run, skip, warn
from broker.doctor.reach import check_broker, check_session
from broker.errors import ConfigError, plain
from broker.figures import counted
from broker.pki import keyfiles
from broker.pki.ca import KEY_FILE, Authority
from broker.system.trainer_settings import OwnTrainer
from broker.wrapping import quoted
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.manifest_file import load_manifest
from coordinator.manifest.problems import ManifestError
from coordinator.service.settings import CoordinatorSettings, load

_IT_TELLS: Final = "`fleet status` tells of it"


def main(argv: Sequence[str] | None = None) -> int:
    """Check this machine; return 0 when nothing fails, 1 when something does."""
    options = ("state", "manifest", "ca")
    return run("coordinator", CoordinatorSettings, options, findings, argv)


def findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Check one thing after the other."""
    yield from check_machine()
    found, _ = load(arguments)
    settings, broker, own = found.settings, found.broker, found.own
    yield from at_fault(found.faults)
    running = False
    if settings is not None:
        yield from check_state(settings.state)
        lock, running = check_lock(settings.state, "coordinator")
        yield lock
        if running and settings.manifest is None:
            yield skip("manifest", "that of the coordinator that runs here is not read", _IT_TELLS)
        else:
            yield check_manifest(settings.manifest, own)
        if running and settings.ca is None:
            yield skip("ca", "the coordinator that runs here may have one", "name its folder: --ca")
        else:
            yield check_ca(settings.ca)
    if broker is not None:
        ask = check_its_session if running else None
        session = partial(check_session, settings=broker, name="coordinator", beside=ask)
        yield from check_broker(broker, COORDINATOR, session)


def check_its_session(name: str) -> Iterator[Finding]:
    """Tell that the coordinator, which runs here as `name`, was left alone."""
    text = f"not tried: the {name} that runs here uses this name"
    for check in ("session", "rights"):
        yield skip(check, text, "`fleet status` asks that one")


def check_ca(folder: Path | None) -> Finding:
    """Tell whether the coordinator can renew the hosts' certificates."""
    if folder is None:
        remedy = "name the CA's folder by `ca` in [coordinator], or --ca, where hosts use mqtts"
        return ok("ca", f"none is named: no certificate is renewed; {remedy}")
    try:
        authority = Authority(folder)
        keyfiles.check_secret(folder / KEY_FILE)
        issued = authority.issued()
    except (ConfigError, OSError) as error:
        return fail("ca", plain(error), "docs/how-to/identity.md tells where it is")
    if not os.access(folder, os.W_OK):
        remedy = "let the user that the coordinator runs as write there"
        return fail("ca", f"{folder}: cannot be written to", remedy)
    return ok("ca", f"{folder}: {len(issued)} certificates were issued")


def check_manifest(path: Path | None, own: Mapping[str, OwnTrainer]) -> Finding:
    """Tell whether the plan can be read; whether its hosts are known `fleet check` tells."""
    if path is None:
        remedy = "set `manifest` in [coordinator] to have jobs"
        return warn("manifest", "none is named: only what is in the ledger is served", remedy)
    ours = {name: trainer.info() for name, trainer in own.items()}
    all_of_it = f"`fleet check {quoted(path)}`"
    try:
        plan = load_manifest(path, {**builtin_trainers(), **ours})
    except ManifestError as error:
        more = len(error.problems) - 1
        text = f"{error.problems[0]}{f' (and {more} more)' if more else ''}"
        return fail("manifest", text, f"{all_of_it} tells all")
    text = f"{path}: {counted(len(plan.jobs), 'job')}"
    if plan.hosts or any(spec.named_hosts() for spec in plan.jobs):
        text += f"; {all_of_it} tells whether its hosts are known"
    return ok("manifest", text)


if __name__ == "__main__":
    sys.exit(main())
