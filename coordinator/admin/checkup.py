"""`fleet doctor` of a coordinator: a line a check, each with its remedy. Nothing is changed."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from broker.client.access import COORDINATOR
from broker.doctor.checks import check_lock, check_machine, check_state
from broker.doctor.findings import Finding, at_fault, fail, ok, run, skip, warn
from broker.doctor.reach import check_broker, check_session
from broker.errors import ConfigError, FleetError, plain
from broker.figures import counted
from broker.pki import keyfiles
from broker.pki.ca import KEY_FILE, Authority
from broker.system.files import holder
from broker.system.settings import BrokerSettings
from broker.system.trainer_settings import OwnTrainer
from coordinator.client.client import OperatorClient
from coordinator.jobs.causes import in_words
from coordinator.jobs.host_paging import known_names
from coordinator.ledger.ledger import FILE_NAME, Ledger
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.manifest_file import load_manifest
from coordinator.manifest.problems import ManifestError
from coordinator.scheduler.unknown_hosts import of_plan
from coordinator.service.settings import CoordinatorSettings, load

MODULE: Final = "coordinator.service"
_PATHS: Final = ("manifest", "ca")
_OPTIONS: Final = {
    "state": "folder of the ledger and the artifact store",
    "manifest": "the plan",
    "ca": "folder of the CA, to renew hosts' certificates",
}
ASK_S: Final = 5.0  # for the coordinator's answer


def started_with(process: int) -> dict[str, Path]:
    """Return the `manifest` and the `ca` that the command line of a coordinator names."""
    try:
        one = psutil.Process(process)
        command, folder = one.cmdline(), Path(one.cwd())
    except (OSError, psutil.Error):
        return {}
    if MODULE not in command:
        return {}
    parser = argparse.ArgumentParser(add_help=False)
    for name in _PATHS:
        parser.add_argument(f"--{name}", type=Path)
    options = vars(parser.parse_known_args(command[command.index(MODULE) + 1 :])[0])
    return {name: folder / path for name, path in options.items() if path is not None}


def main(argv: Sequence[str] | None = None) -> int:
    """Check this machine; return 0 when nothing fails, 1 when something does."""
    return run("coordinator", _OPTIONS, findings, argv)


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
        if running:
            settings = _as_it_runs(settings, arguments)
        hosts = partial(_known_hosts, settings.state, broker, running=running)
        yield from check_manifest(settings.manifest, own, hosts)
        yield check_ca(settings.ca)
    if broker is not None:
        ask = check_its_session if running else None
        session = partial(check_session, settings=broker, name="coordinator", beside=ask)
        yield from check_broker(broker, COORDINATOR, session)


def _as_it_runs(settings: CoordinatorSettings, named: argparse.Namespace) -> CoordinatorSettings:
    """Return the settings with what the one that runs here was told, unless it is `named` here."""
    process = holder(settings.state)
    told = {} if process is None or not process.isdigit() else started_with(int(process))
    return settings.model_copy(
        update={name: path for name, path in told.items() if getattr(named, name) is None}
    )


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


def check_manifest(
    path: Path | None,
    own: Mapping[str, OwnTrainer],
    known_hosts: Callable[[], Collection[str] | None],
) -> Iterator[Finding]:
    """Tell whether the plan can be read, and which hosts it names that nobody knows.

    `known_hosts` returns the known ones, none where they cannot be found out.
    """
    if path is None:
        remedy = "set `manifest` in [coordinator] to have jobs"
        yield warn("manifest", "none is named: only what is in the ledger is served", remedy)
        return
    ours = {name: trainer.info() for name, trainer in own.items()}
    all_of_it = f"`fleet check {shlex.quote(str(path))}`"
    try:
        plan = load_manifest(path, {**builtin_trainers(), **ours})
    except ManifestError as error:
        more = len(error.problems) - 1
        text = f"{error.problems[0]}{f' (and {more} more)' if more else ''}"
        yield fail("manifest", text, f"{all_of_it} tells all")
        return
    text = f"{path}: {counted(len(plan.jobs), 'job')}"
    is_any_named = bool(plan.hosts) or any(spec.named_hosts() for spec in plan.jobs)
    known = known_hosts() if is_any_named else ()
    if known is None:
        text += f"; names of hosts were not checked: {all_of_it} asks the coordinator for them"
    elif is_any_named and not known:
        text += "; names of hosts were not checked: no host is known"
    yield ok("manifest", text)
    for why in of_plan(plan, known or ()):
        yield warn(
            "manifest", in_words(why), "correct the name, or leave it to a host that is to come"
        )


def _known_hosts(
    state: Path, broker: BrokerSettings | None, *, running: bool
) -> Collection[str] | None:
    """Return the hosts that the coordinator, or its ledger, knows; none without an answer."""
    try:
        if running:
            return None if broker is None else _asked_hosts(broker)
        path = state / FILE_NAME
        if not path.exists():
            return ()
        with contextlib.closing(Ledger(path, copy=True)) as ledger:
            return ledger.hosts()
    except (FleetError, OSError):
        return None


def _asked_hosts(broker: BrokerSettings) -> set[str]:
    """Ask the coordinator for its hosts. Raises FleetError."""
    # As the person whose identity is here: the coordinator's own may not ask.
    with OperatorClient(broker.model_copy(update={"identity": None}), ASK_S) as client:
        pages = client.host_pages(absent=True, brief=True)
        return {name for page in pages for name in known_names(page)}


if __name__ == "__main__":
    sys.exit(main())
