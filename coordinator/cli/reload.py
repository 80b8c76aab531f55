"""`fleet reload`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from broker.machine import new_id
from broker.messages import AskReload
from coordinator.cli import EXIT_REFUSED, NotDone, printable
from coordinator.cli.common import client_options, json_option
from coordinator.cli.words import say

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient


@click.command("reload")
@json_option
@client_options
def reload_command(client: OperatorClient, as_json: bool) -> int:
    """Have the coordinator read its manifest again.

    What that has changed is told as `fleet plan MANIFEST` tells it before. A manifest with errors
    changes nothing; all of them are printed.

    Example: fleet reload
    """
    from coordinator.cli import render

    try:
        data = client.ask(AskReload(id=new_id(), expires_at=time.time() + client.timeout_s))
    except NotDone as refusal:
        errors = (refusal.data or {}).get("errors", [])
        if as_json:
            render.print_json({"ok": False, "message": str(refusal), "errors": errors})
        else:
            say(printable(f"error: {refusal}"), err=True)
            for error in errors:
                file = f"{error['file']}:{error['line']}" if error.get("line") else error["file"]
                where = ": ".join(filter(None, (file, error["job"], error["key"])))
                say(printable(f"  {where}: {error['message']}"), err=True, indent=4)
        return EXIT_REFUSED
    if as_json:
        render.print_json({"ok": True, **data})
    else:
        from coordinator.cli import reloaded
        from coordinator.diff import from_list, in_words

        hosts = {name: from_list(rows) for name, rows in data["hosts"].items()}
        reloaded.tell(render.console(), hosts, from_list(data["settings"]))
        say(in_words(data["changes"]))
        for text in data.get("warnings", ()):
            say(f"warning: {printable(text)}", err=True)
    return 0
