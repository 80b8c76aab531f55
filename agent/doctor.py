"""`fleet doctor` of an agent: will this host work? `python -m agent.doctor --help`.

A line a check, each with its remedy. Nothing is changed, and nothing waits for ever.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from agent.beside import Beside, find
from agent.capability import answer_of, probe_torch
from agent.command import trainer_environment
from agent.datacheck import check_data
from agent.gpucheck import check_gpu
from agent.loading import agent_settings, certified_host, load
from agent.settings import AgentSettings
from agent.trainer.config import TRAINERS
from agent.trainer.schema import SCHEMA_FILE
from agent.usage import sources
from broker.checks import check_clock, check_lock, check_memory, check_python, check_state
from broker.findings import Finding, Level, fail, ok, skip, tell, warn
from broker.machine import system_clock
from broker.options import add_options
from broker.reach import check_broker
from broker.settings import BrokerSettings
from broker.trainers import OwnTrainer

START_S: Final = 90.0
OWN_START_S: Final = 20.0
_CANNOT_START: Final = frozenset({126, 127})  # a shell's: not executable, not found
_NEEDS: Final = {"gbt": "xgboost"}
_INSTALL: Final = "pip install 'training-fleet[trainers]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Check this host; return 0 when nothing fails, 1 when something does."""
    arguments = _parser().parse_args(argv)
    return tell("agent", findings(arguments), sys.stdout, as_json=arguments.json)


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
        if broker is not None:
            settings = _named(arguments, settings, broker)
        yield ok("host", settings.host)
        yield from check_state(settings.state)
        lock, running = check_lock(settings.state, "agent")
        yield lock
        beside = None if arguments.data is not None else find(settings.state, settings.host)
        yield check_data(settings.data) if beside is None else check_its_data(beside, settings.data)
        yield check_owner(settings, sources())
    torch = probe_torch()
    yield from check_trainers(torch, own)
    yield check_gpu(torch, wanted=settings is None or settings.cuda)
    if settings is not None and broker is not None:
        # A broker that takes its clients' names from certificates would throw the agent off.
        now_s, named = system_clock().wall_s, "host" in settings.model_fields_set
        yield from check_broker(broker, settings.host, now_s, named=named, session=not running)


def _named(
    arguments: argparse.Namespace, settings: AgentSettings, broker: BrokerSettings
) -> AgentSettings:
    """Return the settings as the agent has them: without a name it takes its certificate's."""
    if "host" in settings.model_fields_set:
        return settings
    host = certified_host(broker)  # what is wrong with it the check of the broker tells
    return settings if host is None else agent_settings(arguments, host)


def check_its_data(beside: Beside, named: Path | None) -> Finding:
    """Tell how the data is of the agent that runs here, rather than what was `named`."""
    who = f"the agent that runs here (process {beside.process})"
    folder = beside.data or (None if beside.seen else named)
    if folder is None:
        if beside.seen:
            remedy = "start it with --data, or set `data` in [agent]"
            return warn("data", f"{who} was told of no prepared data: it can take no job", remedy)
        text = f"this user may not see what data {who} has"
        return skip("data", text, "run this as the user that runs the agent")
    found = check_data(folder)
    hidden = not beside.ours and not os.access(folder / SCHEMA_FILE, os.R_OK)
    if hidden and found.level is Level.FAIL:
        text = f"{folder}: {who} has it, and this user may not look at it"
        return skip("data", text, "run this as the user that runs the agent")
    return replace(found, text=f"{found.text} ({who} has it)")


def check_owner(settings: AgentSettings, sources: tuple[list[str], list[str]]) -> Finding:
    """Tell how this host finds out whether somebody uses it: `agent.usage.sources`."""
    known, unknown = sources
    text = f"that somebody uses this host is told by {', '.join(known)}"
    if not unknown:
        return ok("owner", text)
    text += f"; {' and '.join(unknown)} cannot be known here"
    if not settings.idle_only:
        return ok("owner", text)
    remedy = "idle_only goes by the rest; use quiet_hours, or `fleet snooze --here`, beside it"
    return warn("owner", text, remedy)


def check_trainers(torch: Mapping[str, Any], own: Mapping[str, OwnTrainer]) -> Iterator[Finding]:
    """Start every program that trains, to see that it does; `torch` is what the probe said."""
    has = {name: torch[name] for name in ("torch", "xgboost")}
    if not any(has.values()) and not own:
        yield fail("trainers", "neither torch nor xgboost is installed", _INSTALL)
        return
    for module in sorted({spec.module for spec in TRAINERS.values()}):
        models = [name for name, spec in TRAINERS.items() if spec.module == module]
        there = [name for name in models if has[_NEEDS.get(name, "torch")]]
        missing = [name for name in models if name not in there]
        if there:
            started = [sys.executable, "-m", module, "--help"]
            yield _start(", ".join(there), started, START_S, _INSTALL)
        if missing:
            lacks = " and ".join(sorted({_NEEDS.get(name, "torch") for name in missing}))
            text = f"{', '.join(missing)}: {lacks} is not installed"
            yield warn("trainers", text, f"{_INSTALL}, if this host is to train them")
    for name, trainer in own.items():
        remedy = f"mend command of [trainers.{name}]"
        yield _start(name, [*trainer.command, "--help"], OWN_START_S, remedy, own=True)


def _start(
    what: str, command: Sequence[str], timeout_s: float, remedy: str, *, own: bool = False
) -> Finding:
    """Start a trainer as the agent would; one of the host's own may not understand `--help`."""
    try:
        done = answer_of(command, timeout_s, trainer_environment(os.environ, None, 1))
    except TimeoutError:
        return fail("trainers", f"{what}: did not answer --help in {timeout_s:.0f} s", remedy)
    except OSError as error:
        return fail("trainers", f"{what}: {command[0]}: {error.strerror}", remedy)
    code = done.returncode
    if code == 0 or (own and code > 0 and code not in _CANNOT_START):
        return ok("trainers", f"{what}: start{'s' * (', ' not in what)}")
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]
    return fail("trainers", f"{what}: ends with exit code {code}: {last}", remedy)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_options(parser)
    parser.add_argument("--state", type=Path, help="folder of the spool and the work folders")
    parser.add_argument("--data", type=Path, help="folder of the prepared data")
    parser.add_argument("--host", help="this host's name in the fleet")
    return parser


if __name__ == "__main__":
    sys.exit(main())
