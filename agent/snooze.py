"""`fleet snooze --here` and `fleet resume --here`: the owner's word, on the machine itself.

It needs neither broker nor coordinator, and neither can lift it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from agent import snoozefile
from agent.loading import certified_host
from agent.settings import AgentSettings
from broker.errors import ConfigError
from broker.hours import seconds_until, told
from broker.lock import holder
from broker.settings import BrokerSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Begin or end a snooze; 0 when that is done, 1 when the folder refuses, 2 for wrong usage."""
    arguments = _parser().parse_args(argv)
    try:
        state = _state(arguments)
        text = _end(state) if arguments.end else _begin(state, arguments)
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {error.filename}: {error.strerror}; be its owner, or use sudo\n")
        return 1
    sys.stdout.write(f"{text}\n")
    return 0


def _begin(state: Path, arguments: argparse.Namespace) -> str:
    now = datetime.now().astimezone()
    until = None
    if arguments.time is not None:
        until = now + timedelta(seconds=seconds_until(arguments.time, now))
    snoozefile.write(state, until, finish=arguments.finish)
    left = "until `fleet resume --here`" if until is None else told(_bare(until), _bare(now))
    what = "finishes what runs" if arguments.finish else "gives back what runs"
    agent = f"its agent takes no jobs {left}, and {what}"
    if holder(state) is None:
        return f"{agent}; none runs here now"
    return agent


def _end(state: Path) -> str:
    if not snoozefile.end(state):
        raise ConfigError(f"{state}: this machine is not snoozed by its owner")
    return "its agent takes jobs again"


def _bare(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


def _state(arguments: argparse.Namespace) -> Path:
    """Return the state folder of this machine's agent, as that finds it."""
    said = {"state": arguments.state, "host": arguments.host}
    settings = AgentSettings.load(arguments.config, said)
    if "host" not in settings.model_fields_set and arguments.state is None:
        broker = BrokerSettings.load(arguments.config, {"identity": arguments.identity})
        host = certified_host(broker)
        if host is not None:
            settings = AgentSettings.load(arguments.config, {"host": host})
    if not settings.state.is_dir():
        raise ConfigError(
            f"{settings.state}: no agent has kept its state there; name its folder with --state"
        )
    return settings.state


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet snooze --here", description=__doc__)
    parser.add_argument("--time", help="30m, 3h, 18:00; without one, until it is ended")
    parser.add_argument("--finish", action="store_true", help="what runs may be finished")
    parser.add_argument("--end", action="store_true", help="end it")
    parser.add_argument("--state", type=Path, help="the agent's state folder")
    parser.add_argument("--host", help="the agent's name")
    parser.add_argument("--identity", type=Path, help="folder of its certificate")
    parser.add_argument("--config", type=Path, help="configuration file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
