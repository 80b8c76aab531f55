"""The coordinator as a program: its options and its signals."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from broker.client.access import COORDINATOR, open_access
from broker.client.options import add_options
from broker.errors import ConfigError, StorageError, plain
from broker.system.logs import announce, setup
from broker.system.machine import system_clock
from broker.system.process import end_in_time, end_with_parent, on_signals, tune
from broker.system.systemd import Notifier
from broker.wrapping import complain
from coordinator.core.effects import ReloadAsked
from coordinator.service.service import Service
from coordinator.service.settings import CoordinatorSettings, load

log = logging.getLogger("fleet.coordinator")

END_S: Final = 20.0  # a service manager waits for longer


def main(argv: Sequence[str] | None = None) -> int:
    """Run the coordinator: `python -m coordinator.service --help`."""
    arguments = _parser().parse_args(argv)
    setup(arguments.log_level)
    tune()
    try:
        found, home = load(arguments)
        settings, broker = found.whole()
        if arguments.no_metrics:
            settings = settings.model_copy(update={"metrics": None})
        access = open_access(broker, COORDINATOR, system_clock().wall_s)
        manager = Notifier.take(os.environ, os.getpid())
        service = Service(
            settings, broker, access, found.own, manager, home,
            accept_ledger=arguments.accept_ledger, may_fall_back=not arguments.no_last_good,
        )  # fmt: skip
    except (ConfigError, StorageError, OSError) as error:
        complain(plain(error))
        return 2 if isinstance(error, ConfigError) else 1

    def stop() -> None:
        # What is durable is in the ledger; of what is not yet, everybody tells again.
        end_in_time(END_S, log)
        service.stop()

    on_signals({
        "SIGTERM": stop,
        "SIGINT": stop,
        "SIGBREAK": stop,  # Windows' Ctrl-Break, and a console that is closed
        "SIGHUP": lambda: service.mailbox.put(ReloadAsked()),
    })  # fmt: skip
    end_with_parent(stop)
    try:
        service.run(lambda: announce({"event": "ready"}, "the coordinator is ready"))
    except ConfigError as error:
        complain(str(error))
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet coordinator", description=__doc__)
    add_options(parser)
    CoordinatorSettings.add_options(parser)
    parser.add_argument(
        "--accept-ledger", action="store_true", help="though it is empty or older than it was"
    )
    parser.add_argument("--no-metrics", action="store_true", help="whatever the file says")
    text = "end, rather than go on with the last good manifest, if this one has errors"
    parser.add_argument("--no-last-good", action="store_true", help=text)
    parser.add_argument("--log-level", default=os.environ.get("FLEET_LOG_LEVEL", "INFO"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
