"""The agent that runs on this machine, as others see it from beside: how it was started.

Its command line, environment and configuration file tell, as far as this user may look at them.
`fleet doctor` asks for it, and `fleet join`: `python -m agent.running_agent FOLDER` says which
agent has the certificate in a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psutil

from agent.service import status
from agent.service.settings import AgentSettings, default_host
from broker.errors import ConfigError
from broker.pki.identity import CERTIFICATE_FILE
from broker.system.files import holder
from broker.system.settings import config_in, read_section, state_home

MODULE: Final = "agent.service"
# Another user may not see in what environment an agent was started: most likely by the installers.
_INSTALLED: Final = {"FLEET_CONFIG": "/etc/fleet/fleet.toml", "XDG_STATE_HOME": "/var/lib"}


@dataclass(frozen=True, slots=True)
class Beside:
    """An agent that runs here. `data` is none where it was told of none, or that cannot be seen.

    `seen` says which of the two; `ours`, whether it runs as this user.
    """

    process: int
    host: str
    data: Path | None
    seen: bool
    ours: bool


def find(state: Path, host: str) -> Beside | None:
    """Return the agent that works on `state`, else one that is called `host`; none without one."""
    try:
        held = holder(state)
    except OSError:
        held = None
    if held is not None and held.isdigit():
        try:
            return _look_at(psutil.Process(int(held)))
        except psutil.Error:
            return None  # it has just ended
    found = (_look_at(process) for process in psutil.process_iter())
    return next((one for one in found if one is not None and one.host == host), None)


def user_of(identity: Path) -> tuple[int, status.Word] | None:
    """Return the agent that runs here with the certificate in a folder: its process and its word.

    None where there is no such agent, or this user may not see it.
    """
    for process in psutil.process_iter():
        start = _start_of(process)
        for state in () if start is None else _states(start):
            with contextlib.suppress(OSError):
                word = status.read(state)
                is_its = word is not None and word.identity == str(identity.absolute())
                if word is not None and is_its and holder(state) == str(process.pid):
                    return process.pid, word
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Say as JSON which agent has the certificate in a folder, and whether it is connected.

    `with_it`: by the certificate that is there now, not by one of before.
    """
    parser = argparse.ArgumentParser(prog="python -m agent.running_agent", description=__doc__)
    parser.add_argument("identity", type=Path)
    identity = parser.parse_args(argv).identity
    process, word = user_of(identity) or (None, status.Word())
    with_it = word.connected and _is_newer(word, identity / CERTIFICATE_FILE)
    said = {"process": process, "connected": word.connected, "with_it": with_it}
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


def _is_newer(word: status.Word, path: Path) -> bool:
    try:
        return datetime.fromisoformat(word.since).timestamp() >= path.stat().st_mtime
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _Start:
    """How an agent was started: in which folder, with which options, environment and settings.

    `section` is none where this user may not see its settings.
    """

    folder: Path
    options: argparse.Namespace
    environment: Mapping[str, str]
    section: Mapping[str, Any] | None


def _start_of(process: psutil.Process) -> _Start | None:
    """Return what can be known of an agent's start; none of another program, or one that hides."""
    try:
        command = process.cmdline()
    except (OSError, psutil.Error):
        return None
    if MODULE not in command:
        return None
    try:
        folder, environment = Path(process.cwd()), process.environ()
    except (OSError, psutil.Error):
        folder, environment = Path("/"), _INSTALLED
    options = _parser().parse_known_args(command[command.index(MODULE) + 1 :])[0]
    return _Start(folder, options, environment, _section(options.config, folder, environment))


def _look_at(process: psutil.Process) -> Beside | None:
    start = _start_of(process)
    if start is None:
        return None
    try:
        ours = process.username() == psutil.Process().username()
    except (OSError, KeyError, psutil.Error):  # KeyError: a user without a name
        return None
    options, told = start.options, start.section or {}
    data = options.data or told.get("data")
    named = options.host or start.environment.get("FLEET_HOST_ID") or told.get("host")
    return Beside(
        process.pid,
        str(named or default_host()),
        None if data is None else start.folder / Path(str(data)).expanduser(),
        seen=start.section is not None,
        ours=ours,
    )


def _states(start: _Start) -> Iterator[Path]:
    """Give the folders of which one may be its state folder: its own, or all in the usual place."""
    named = start.options.state or (start.section or {}).get("state")
    if named:
        yield start.folder / Path(str(named)).expanduser()
        return
    with contextlib.suppress(OSError, ConfigError):  # the second: it has no home
        yield from state_home(start.environment).glob("agent-*")


def _section(
    given: str | None, folder: Path, environment: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """Return its section of its configuration file, empty without one; none if it is hidden."""
    try:
        path = config_in(folder, Path(given) if given else None, environment)
        return {} if path is None else read_section(path, AgentSettings.section)
    except (OSError, ConfigError):
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    for option in ("--config", "--data", "--host", "--state"):
        parser.add_argument(option)
    return parser


if __name__ == "__main__":
    sys.exit(main())
