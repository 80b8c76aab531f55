"""`fleet top`."""

from __future__ import annotations

import sys

import click

from broker.errors import ConfigError
from coordinator.ui.options import Where, flag, option, where_options


@click.command("top")
@flag("--light", "Dark on light; the key t changes it.")
@option("--every", "SECONDS", "How often the screen may change.",
        type=click.FloatRange(0.2, 60), default=0.5, show_default=True)  # fmt: skip
@where_options
def top_command(at: Where, light: bool, every: float) -> None:
    """The fleet on a full screen, live: hosts and jobs, their load and progress.

    Enter shows what is selected, c cancels a job, r puts it back into the queue, d drains a host;
    ? tells all keys. Needs the extra `console`.

    Example: fleet top
    """
    try:
        from coordinator.top.app import Top
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "textual":
            raise
        raise ConfigError(
            "`fleet top` needs Textual, which is not installed: pip install '.[console]'"
        ) from None
    from coordinator.client.watcher import Watcher

    # Textual draws on standard error.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise ConfigError("`fleet top` needs a terminal; for scripts there is `fleet list --json`")
    watcher = Watcher(at.settings())
    watcher.start()
    try:
        Top(watcher, light=light, every_s=every).run()
    finally:
        watcher.stop()
