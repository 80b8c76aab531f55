"""The agents that run on this machine, by what they say of themselves (`agent.service.status`).

`fleet doctor` asks for them, and `fleet join`: `python -m agent.running_agent FOLDER` says which
agent has the certificate in a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import psutil

from agent.service import status
from broker.errors import ConfigError
from broker.pki.identity import CERTIFICATE_FILE
from broker.system.files import holder
from broker.system.settings import state_home

MODULE: Final = "agent.service"
_INSTALLED: Final = Path("/var/lib/fleet")  # by the installers


@dataclass(frozen=True, slots=True)
class Beside:
    """An agent that runs here; `word` is none where this user may not see it.

    `ours`: this user may write its state, and so may see what it sees.
    """

    process: int
    word: status.Word | None = None
    ours: bool = False


def find(state: Path, host: str) -> Beside | None:
    """Return the agent that works on `state`, else one that is called `host`; none without one."""
    with contextlib.suppress(OSError):
        held = holder(state)
        if held is not None and held.isdigit():
            return Beside(int(held), status.read(state), os.access(state, os.W_OK))
    return next((one for one in _agents() if one.word is None or one.word.host == host), None)


def user_of(identity: Path) -> Beside | None:
    """Return the agent that runs here with the certificate in a folder.

    None where there is no such agent, or this user may not see it.
    """
    name = str(identity.absolute())
    return next((one for one in _agents() if one.word and one.word.identity == name), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Say as JSON which agent has the certificate in a folder, and whether it is connected.

    `with_it`: by the certificate that is there now, not by one of before.
    """
    parser = argparse.ArgumentParser(prog="python -m agent.running_agent", description=__doc__)
    parser.add_argument("identity", type=Path)
    identity = parser.parse_args(argv).identity
    found = user_of(identity)
    word = found.word if found is not None and found.word is not None else status.Word()
    with_it = word.connected and _is_newer(word, identity / CERTIFICATE_FILE)
    process = None if found is None else found.process
    said = {"process": process, "connected": word.connected, "with_it": with_it}
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


def _is_newer(word: status.Word, path: Path) -> bool:
    try:
        return datetime.fromisoformat(word.since).timestamp() >= path.stat().st_mtime
    except OSError:
        return False


def _agents() -> Iterator[Beside]:
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            command = process.cmdline()
            if MODULE in command:
                yield _look_at(process, command)


def _look_at(process: psutil.Process, command: Sequence[str]) -> Beside:
    for state in _states(process, command):
        with contextlib.suppress(OSError):
            if holder(state) == str(process.pid):
                return Beside(process.pid, status.read(state), os.access(state, os.W_OK))
    return Beside(process.pid)


def _states(process: psutil.Process, command: Sequence[str]) -> Iterator[Path]:
    """Give the folders of which one is its state folder: what it was told, or the usual places."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--state", type=Path)
    if (named := parser.parse_known_args(command)[0].state) is not None:
        with contextlib.suppress(OSError, psutil.Error):
            yield Path(process.cwd(), named.expanduser())
    with contextlib.suppress(OSError, ConfigError):  # the second: this user has no home
        yield from _INSTALLED.glob("agent-*")
        yield from state_home().glob("agent-*")


if __name__ == "__main__":
    sys.exit(main())
