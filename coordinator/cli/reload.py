"""`fleet reload`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from broker.protocol.messages import AskReload
from broker.sentences import printable
from broker.system.machine import new_id
from coordinator.client.contact import NotDone
from coordinator.ui import reload_lines, terminal
from coordinator.ui.exit_codes import EXIT_REFUSED
from coordinator.ui.options import client_options, json_option
from coordinator.ui.words import print_json, say

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient


@click.command("reload")
@click.option("--all", "show_all", is_flag=True, help="Show every job, not a screenful.")
@json_option
@client_options
def reload_command(client: OperatorClient, show_all: bool, as_json: bool) -> int:
    """Have the coordinator read its manifest again.

    What that has changed is told by the lines by which `fleet plan MANIFEST` tells it before; of a
    large change the answer names the first hundred jobs and hosts. A manifest with errors changes
    nothing; all of them are printed.

    Example: fleet reload
    """
    try:
        data = client.ask(AskReload(id=new_id(), expires_at=time.time() + client.timeout_s))
    except NotDone as refusal:
        _complain(refusal, as_json=as_json)
        return EXIT_REFUSED
    if as_json:
        print_json({"ok": True, **data})
    else:
        _print(data, show_all=show_all)
    return 0


def _print(data: dict[str, Any], *, show_all: bool) -> None:
    from coordinator.manifest.diff import in_words

    out = terminal.console()
    reload_lines.tell(out, data, reload_lines.rows_of(out, show_all=show_all))
    say(in_words(data["changes"]))
    for text in data.get("warnings", ()):
        say(f"warning: {printable(text)}", err=True)


def _complain(refusal: NotDone, *, as_json: bool) -> None:
    """Print every error of a manifest that was not taken."""
    errors = (refusal.data or {}).get("errors", [])
    if as_json:
        print_json({"ok": False, "message": str(refusal), "errors": errors})
        return
    say(printable(f"error: {refusal}"), err=True)
    for error in errors:
        file = f"{error['file']}:{error['line']}" if error.get("line") else error["file"]
        where = ": ".join(filter(None, (file, error["job"], error["key"])))
        say(printable(f"{where}: {error['message']}"), err=True)
