"""`fleet snooze --here` and `fleet resume --here`: the owner's word, on the machine itself.

It needs neither broker nor coordinator, and neither can lift it.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from agent.core.core_settings import LOOK_S
from agent.host.usage import end_snooze, write_snooze
from agent.service.settings import AgentSettings, certified_host
from broker.errors import ConfigError, plain
from broker.protocol.quiet_hours import seconds_until, told
from broker.protocol.topics import is_host
from broker.system.files import holder
from broker.system.settings import BrokerSettings
from broker.wrapping import complain, laid_out

_HEARD: Final = f"its agent sees it within {LOOK_S:g} seconds"


def main(argv: Sequence[str] | None = None) -> int:
    """Begin or end a snooze; 0 when that is done, 2 for wrong usage.

    1 when the folder refuses, or whoever was asked said no.
    """
    arguments = _parser().parse_args(argv)
    try:
        state, whose = _agent(arguments)
        if not _is_meant(state, arguments):
            sys.stderr.write("nothing was changed\n")
            return 1
        text = _end(state, whose) if arguments.end else _begin(state, whose, arguments)
    except ConfigError as error:
        complain(str(error))
        return 2
    except OSError as error:
        complain(plain(error))
        return 1
    sys.stdout.write(laid_out(text, sys.stdout) + "\n")
    return 0


def _begin(state: Path, whose: str, arguments: argparse.Namespace) -> str:
    now = datetime.now().astimezone()
    until = None
    if arguments.time is not None:
        until = now + timedelta(seconds=seconds_until(arguments.time, now))
    write_snooze(state, until, at_once=arguments.now)
    left = "until `fleet resume --here`" if until is None else told(_bare(until), _bare(now))
    what = "finishes what runs (--now has it given back)"
    if arguments.now:
        what = "gives back what runs"
    said = f"{whose} takes no jobs {left}, and {what}"
    if holder(state) is None:
        return f"{said}; its agent does not run now"
    return f"{said}; {_HEARD}"


def _end(state: Path, whose: str) -> str:
    if not end_snooze(state):
        raise ConfigError(f"{state}: this machine is not snoozed by its owner")
    said = f"{whose} takes jobs again"
    return said if holder(state) is None else f"{said}; {_HEARD}"


def _is_meant(state: Path, arguments: argparse.Namespace) -> bool:
    """Ask, at a terminal, whether jobs that keep no checkpoint are to begin again elsewhere."""
    if not arguments.now or arguments.yes or not sys.stdin.isatty() or holder(state) is None:
        return True
    lost = [*_without_checkpoint(state)]
    if not lost:
        return True
    jobs = f"job {lost[0]} keeps" if len(lost) == 1 else f"jobs {', '.join(lost)} keep"
    question = f"{jobs} no checkpoint, and would begin again elsewhere; give back? [y/N]: "
    sys.stderr.write(laid_out(question, sys.stderr))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _without_checkpoint(state: Path) -> Iterator[str]:
    """Yield the short ids of jobs here whose trainers were given no checkpoint folder."""
    for work in sorted((state / "work").glob("*.*")):
        job_id, _, attempt = work.name.rpartition(".")
        given = ""
        with contextlib.suppress(OSError):
            given = (state / "checkpoints" / job_id / "attempt").read_text("ascii")
        if given != attempt:
            yield job_id[:12]


def _bare(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


def _agent(arguments: argparse.Namespace) -> tuple[Path, str]:
    """Return the state folder of this machine's agent, as that finds it, and who it is in words.

    A state folder that somebody names does not say whose it is.
    """
    settings = AgentSettings.by_options(arguments)
    if "host" not in settings.model_fields_set and arguments.state is None:
        host = _certified(arguments)
        if host is not None:
            settings = AgentSettings.by_options(arguments, host=host)
    if not settings.state.is_dir():
        raise ConfigError(
            f"{settings.state}: no agent has kept its state there; name its folder with --state"
        )
    whose = settings.host if arguments.state is None else f"the agent of {settings.state}"
    return settings.state, whose


def _certified(arguments: argparse.Namespace) -> str | None:
    """Return the host that a certificate here names: that of --identity, or else the agent's."""
    if arguments.identity is None:
        return certified_host(BrokerSettings.load(arguments.config, {}))
    # Not above: most machines are asked without, and the import takes its time.
    from broker.pki.certificates import common_name, read_certificate
    from broker.pki.identity import CERTIFICATE_FILE

    name = common_name(read_certificate(arguments.identity / CERTIFICATE_FILE))
    if not is_host(name):
        raise ConfigError(
            f"--identity {arguments.identity}: this is the identity of {name!r}, and that of this "
            "machine's agent is wanted; name its folder, or the agent's state with --state"
        )
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet snooze --here", description=__doc__)
    parser.add_argument("--time", help="30m, 3h, 18:00; without one, until it is ended")
    parser.add_argument("--now", action="store_true", help="what runs is given back at once")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--end", action="store_true", help="end it")
    AgentSettings.add_options(parser, "state", "host")
    parser.add_argument("--identity", type=Path, help="folder of its certificate")
    parser.add_argument("--config", type=Path, help="configuration file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
