"""The agent that runs on this machine, as `fleet doctor` sees it from beside: how it was started.

Its command line, environment and configuration file tell, as far as this user may look at them.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from agent.settings import AgentSettings, default_host
from broker.errors import ConfigError
from broker.lock import holder
from broker.settings import read_section

MODULE: Final = "agent.service"
_MACHINES: Final = Path("/etc/fleet/fleet.toml")


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


def _look_at(process: psutil.Process) -> Beside | None:
    """Return what can be known of an agent; none of another program, or one that hides."""
    try:
        command = process.cmdline()
        if MODULE not in command:
            return None
        ours = process.username() == psutil.Process().username()
    except (OSError, KeyError, psutil.Error):  # KeyError: a user without a name
        return None
    folder = Path("/")
    environment: dict[str, str] = {}
    with contextlib.suppress(OSError, psutil.Error):  # another user may look at neither
        folder, environment = Path(process.cwd()), process.environ()
    options = _parser().parse_known_args(command[command.index(MODULE) + 1 :])[0]
    section = _section(options.config, folder, environment)
    told: Mapping[str, Any] = section or {}
    data = options.data or told.get("data")
    host = options.host or environment.get("FLEET_HOST_ID") or told.get("host") or default_host()
    return Beside(
        process.pid,
        str(host),
        None if data is None else folder / Path(str(data)).expanduser(),
        seen=section is not None,
        ours=ours,
    )


def _section(
    given: str | None, folder: Path, environment: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """Return its section of its configuration file, empty without one; none if it is hidden.

    The file is looked for as `broker.settings.find_config` does, where the agent would.
    """
    named = given or environment.get("FLEET_CONFIG")
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "/")) / ".config"
    usual = (Path("fleet.toml"), Path(home) / "fleet" / "fleet.toml", _MACHINES)
    try:
        places = [folder / one for one in ((Path(named),) if named else usual)]
        path = next((one for one in places if one.is_file()), None)
        return {} if path is None else read_section(path, AgentSettings.section)
    except (OSError, ConfigError):
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    for option in ("--config", "--data", "--host"):
        parser.add_argument(option)
    return parser
