"""`fleet doctor` of an agent: will this host work? `python -m agent.doctor --help`.

A line a check, each with its remedy. Nothing is changed, and nothing waits for ever.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from agent.host.capability import probe_torch
from agent.host.data_check import check_data
from agent.host.gpu import check_gpu
from agent.host.usage import sources
from agent.process.command import trainer_environment
from agent.programs.settings import UNCHECKED, ProgramSettings
from agent.running_agent import Beside, find
from agent.service import status
from agent.service.settings import AgentSettings, certified_host, load
from agent.trainer.common.config import TRAINERS
from agent.trainer.data.schema import SCHEMA_FILE
from broker.client.access import AGENT
from broker.doctor.checks import check_lock, check_machine, check_state
from broker.doctor.findings import Finding, Level, at_fault, fail, ok, run, skip, warn
from broker.doctor.reach import check_broker, check_session, no_session
from broker.figures import how_ended
from broker.system.children import answer_of
from broker.system.settings import BrokerSettings
from broker.system.trainer_settings import OwnTrainer

START_S: Final = 90.0
OWN_START_S: Final = 20.0
_CANNOT_START: Final = frozenset({126, 127})  # a shell's: not executable, not found
_FILES: Final = r"SYSTEM\CurrentControlSet\Control\FileSystem"
_NEEDS: Final = {"gbt": "xgboost"}
_INSTALL: Final = "pip install 'training-fleet[trainers]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Check this host; return 0 when nothing fails, 1 when something does."""
    return run("agent", AgentSettings, ("state", "data", "host"), findings, argv)


def findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Check one thing after the other."""
    yield from check_machine()
    found = load(arguments)
    settings, broker, own = found.settings, found.broker, found.own
    programs = found.faults.of(lambda: ProgramSettings.by_options(arguments))
    yield from at_fault(found.faults)
    running = False
    if settings is not None:
        if broker is not None:
            settings = _named(arguments, settings, broker)
        yield ok("host", settings.host)
        yield from check_state(settings.state)
        yield from check_long_paths()
        lock, running = check_lock(settings.state, "agent")
        yield lock
        beside = None if arguments.data is not None else find(settings.state, settings.host)
        yield check_folder(settings.data, beside, programs)
        yield check_owner(settings, sources())
    torch = probe_torch()
    yield from check_trainers(torch, own)
    certified = broker is None or certified_host(broker) is not None
    yield from check_programs(programs, certified=certified)
    yield check_gpu(torch, wanted=settings is None or settings.cuda)
    if settings is not None and broker is not None:
        name = settings.host if "host" in settings.model_fields_set else None
        ask = partial(check_its_session, settings.state) if running else None
        session = partial(check_session, settings=broker, name=settings.host, beside=ask)
        yield from check_broker(broker, AGENT, session, name)


def _named(
    arguments: argparse.Namespace, settings: AgentSettings, broker: BrokerSettings
) -> AgentSettings:
    """Return the settings as the agent has them: without a name it takes its certificate's."""
    if "host" in settings.model_fields_set:
        return settings
    host = certified_host(broker)  # what is wrong with it the check of the broker tells
    return settings if host is None else AgentSettings.by_options(arguments, host=host)


def check_long_paths() -> Iterator[Finding]:
    """Warn where Windows takes no long path: packages and datasets lie deep in the state folder."""
    if not _takes_long_paths():
        text = "Windows takes none of more than 260 characters, as packages and data may have here"
        set_it = f"reg add HKLM\\{_FILES} /v LongPathsEnabled /t REG_DWORD /d 1 /f"
        yield warn("paths", text, f"as administrator: `{set_it}`")


def _takes_long_paths() -> bool:
    if sys.platform == "win32":
        import winreg

        with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _FILES) as key:
            return bool(winreg.QueryValueEx(key, "LongPathsEnabled")[0])
        return False
    return True


def check_folder(
    folder: Path | None, beside: Beside | None, programs: ProgramSettings | None
) -> Finding:
    """Tell how the data is, of the agent that runs here if one does; programs need none."""
    named = folder if beside is None else beside.word is None or beside.word.data
    if not named and programs is not None and programs.allowed() is not None:
        return ok("data", "no folder of prepared data is named; programs bring their data")
    return check_data(folder) if beside is None else check_its_data(beside)


def check_its_data(beside: Beside) -> Finding:
    """Tell how the data is of the agent that runs here."""
    who = f"the agent that runs here (process {beside.process})"
    if beside.word is None:
        text = f"this user may not see what data {who} has"
        return skip("data", text, "run this as the user that runs the agent")
    if not beside.word.data:
        remedy = "start it with --data, or set `data` in [agent]"
        text = f"{who} was told of no prepared data: no job that reads it can be taken"
        return warn("data", text, remedy)
    folder = Path(beside.word.data)
    found = check_data(folder)
    hidden = not beside.ours and not os.access(folder / SCHEMA_FILE, os.R_OK)
    if hidden and found.level is Level.FAIL:
        text = f"{folder}: {who} has it, and this user may not look at it"
        return skip("data", text, "run this as the user that runs the agent")
    return replace(found, text=f"{found.text} ({who} has it)")


def check_its_session(state: Path, name: str) -> Iterator[Finding]:
    """Tell how the agent of `state`, which runs here as `name`, is connected: by its own word."""
    who = "the agent that runs here"
    try:
        word = status.read(state)
    except OSError:
        text = f"this user may not see whether {who} is connected"
        yield skip("session", text, "run this as the user that runs the agent")
        word = None
    else:
        yield _session(word, who, name)
    if word is None or word.lost is None:
        why = f"not asked: {who} uses this name"
        yield skip("coordinator", why, "`fleet status` tells, of an operator")
    else:
        yield skip("coordinator", f"not asked: {who} is not connected", "mend that first")


def _session(word: status.Word | None, who: str, name: str) -> Finding:
    if word is None:
        return skip("session", f"{who} does not say whether it is connected", "its log does")
    since = f"{datetime.fromisoformat(word.since).astimezone():%Y-%m-%d %H:%M:%S}"
    if word.connected:
        return ok("session", f"{who} has been connected since {since}")
    if word.lost is None:
        return skip("session", f"{who} connects for the first time", "look again in some seconds")
    why = f"{who} has not been connected since {since}: {word.lost.why}"
    return no_session(replace(word.lost, why=why), name)


def check_owner(settings: AgentSettings, sources: tuple[list[str], list[str]]) -> Finding:
    """Tell how this host finds out whether somebody uses it: `agent.host.usage.sources`."""
    known, unknown = sources
    text = f"the owner's use is seen by {' and '.join(known)}"
    if not unknown:
        return ok("owner", text)
    text += f"; {' and '.join(unknown)} cannot be read here"
    if not settings.idle_only:
        return ok("owner", text)
    remedy = "idle_only goes by the rest; use quiet_hours, or `fleet snooze --here`, beside it"
    return warn("owner", text, remedy)


def check_programs(settings: ProgramSettings | None, *, certified: bool) -> Iterator[Finding]:
    """Say which programs of the fleet run here, if any do, and in what.

    `certified`: the agent has a certificate, and with it the CA to check signatures by.
    """
    allowed = None if settings is None else settings.allowed()
    if allowed is not None:
        what = [f"{len(allowed.pinned)} pinned"] if allowed.pinned else []
        what += [f"those that {name} signed" for name in allowed.signed_by]
        what += ["those that nobody signed"] if allowed.unsigned else []
        inside = "without a sandbox" if allowed.sandbox == "none" else "in bubblewrap"
        yield ok("programs", f"{', '.join(what)}; {inside}")
        if allowed.signed_by and not certified:
            yield warn("programs", UNCHECKED, "`fleet join` gets one; or pin each program")


def check_trainers(torch: Mapping[str, Any], own: Mapping[str, OwnTrainer]) -> Iterator[Finding]:
    """Start every program that trains, to see that it does; `torch` is what the probe said."""
    has = {name: torch[name] for name in ("torch", "xgboost")}
    if not any(has.values()) and not own:
        yield fail("trainers", "neither torch nor xgboost is installed", _INSTALL)
        return
    starts: list[str] = []
    for names, command, is_own in _programs(has, own):
        if fault := _fault(command, own=is_own):
            remedy = f"mend command of [trainers.{names[0]}]" if is_own else _INSTALL
            yield fail("trainers", f"{', '.join(names)}: {fault}", remedy)
        else:
            starts += names
    for package in (name for name in has if not has[name]):
        missing = [name for name in TRAINERS if _NEEDS.get(name, "torch") == package]
        text = f"{', '.join(missing)}: {package} is not installed"
        yield warn("trainers", text, f"{_INSTALL}, if this host is to train them")
    if starts:
        yield ok("trainers", _start(starts))


def _programs(
    has: Mapping[str, Any], own: Mapping[str, OwnTrainer]
) -> Iterator[tuple[list[str], list[str], bool]]:
    """Yield each program that trains: its models, its command, whether it is the host's own."""
    for module in sorted({spec.module for spec in TRAINERS.values()}):
        models = [name for name, spec in TRAINERS.items() if spec.module == module]
        if there := [name for name in models if has[_NEEDS.get(name, "torch")]]:
            yield there, [sys.executable, "-m", module, "--help"], False
    for name, trainer in own.items():
        yield [name], [*trainer.command, "--help"], True


def _start(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} starts"
    return f"{', '.join(names[:-1])} and {names[-1]} start"


def _fault(command: Sequence[str], *, own: bool) -> str:
    """Start a trainer as the agent would; return what is wrong with it, or nothing.

    One of the host's own may not understand `--help`.
    """
    timeout_s = OWN_START_S if own else START_S
    try:
        with tempfile.TemporaryDirectory() as caches:
            environment = trainer_environment(os.environ, None, 1, Path(caches))
            done = answer_of(command, timeout_s, environment)
    except TimeoutError:
        return f"did not answer --help in {timeout_s:.0f} s"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    code = done.code
    if code == 0 or (own and code > 0 and code not in _CANNOT_START):
        return ""
    return f"{how_ended(code)}: {done.complaint('it said nothing')[:300]}"


if __name__ == "__main__":
    sys.exit(main())
