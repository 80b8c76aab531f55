"""The command line `fleet`: verbs and the files that hold them, loaded on use.

A new verb: a row of `VERBS`, and `VERB_command` in its file. What it asks the coordinator: a class
in broker/protocol/messages/operators.py (`Command` if it changes something; add it to the union),
and a row of `HANDLERS` in coordinator/core/commands/requests.py. At last `make generate`, and the
shape of its `--json` in tests/system/test_json_shapes.py.

Exit codes: 0 done, 1 refused or not found, 2 wrong usage, 3 coordinator or broker not reachable
within the deadline, 4 there are changes (`plan --detailed-exitcode`), 5 nothing could run (`up
--until-idle`).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from typing import Any, Final

import click

from broker.errors import ConfigError, FleetError, is_closed_pipe, plain
from broker.protocol.hyperschema import meant
from broker.wrapping import HANG, laid_out, printable
from coordinator import __version__
from coordinator.client.contact import Unreachable
from coordinator.ui import EXIT_INTERRUPTED, EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE

_KINDS: Final = frozenset({"dict", "list", "float", "str"})  # stand between the keys of JSON

# verb -> (module, one line of help); the order is the order of `fleet --help`
VERBS: Final[dict[str, tuple[str, str]]] = {
    "up": ("up", "Run broker, coordinator and agents on this machine."),
    "broker": ("serve", "Run the embedded broker."),
    "coordinator": ("serve", "Run the coordinator."),
    "agent": ("serve", "Run this host's agent."),
    "doctor": ("doctor", "Check whether this machine will work."),
    "init": ("init", "Make the fleet's certificates."),
    "enroll": ("enroll", "Give a host or a person a certificate."),
    "join": ("join", "Take this host's certificate."),
    "revoke": ("revoke", "Take a certificate back."),
    "check": ("check", "Check a manifest; needs no coordinator."),
    "plan": ("plan", "What a reload would change, and when the plan will be done."),
    "status": ("status", "How many jobs and hosts are in which state."),
    "top": ("top", "The fleet on a full screen, live."),
    "list": ("lists", "The jobs."),
    "show": ("show", "Jobs, with their history."),
    "why": ("why", "Why a job is not running, host by host."),
    "logs": ("logs", "The output of jobs."),
    "cancel": ("cancel_requeue", "Cancel jobs."),
    "requeue": ("cancel_requeue", "Put jobs back into the queue."),
    "run": ("run", "Have one job trained that is in no manifest."),
    "reload": ("reload", "Have the coordinator read its manifest again."),
    "workers": ("lists", "The hosts."),
    "drain": ("host_use", "Give a host no new jobs."),
    "snooze": ("host_use", "Give a host no jobs for a while."),
    "resume": ("host_use", "Give a host jobs again."),
    "pause": ("host_use", "Give out no new jobs at all."),
    "forget": ("host_use", "Forget a host that is gone for good."),
    "events": ("events", "What happened, and what operators did."),
    "stats": ("stats", "Hours, successes and durations by host, model or day."),
    "dashboard": ("dashboard", "Show the fleet in a browser."),
    "get": ("results", "Fetch artifacts of jobs, check and unpack them."),
    "report": ("results", "Draw the page of a job's report."),
    "predict": ("results", "Score telemetry with a trained model."),
    "push": ("push", "Send a program of yours to the fleet."),
    "programs": ("push", "The programs of the fleet: list them, remove one."),
    "data": ("push", "The datasets of the fleet: send one, list them, remove one."),
    "backup": (".admin.verbs", "Copy the ledger, while a coordinator runs or not."),
    "fsck": (".admin.verbs", "Compare ledger, artifacts and logs."),
    "operator-key": ("init", "Make a key that commands are signed with."),
    "completion": ("completion", "Have the shell complete verbs, jobs and hosts."),
}
HELP_COLUMNS: Final = 92  # of every help at most; click leaves two of them free
# What verbs are called elsewhere.
_OTHER_WORDS: Final = {
    "jobs": "list", "ls": "list", "ps": "list", "queue": "list",
    "hosts": "workers", "nodes": "workers", "agents": "workers", "machines": "workers",
    "log": "logs", "history": "events", "info": "show", "describe": "show", "explain": "why",
    "submit": "run", "add": "run", "train": "run", "retry": "requeue", "restart": "requeue",
    "kill": "cancel", "stop": "cancel", "fetch": "get", "download": "get", "web": "dashboard",
    "unpause": "pause", "score": "predict", "validate": "check", "start": "up",
    "dataset": "data", "datasets": "data",
}  # fmt: skip
_RESTORE: Final = (
    "No such command 'restore'. A backup is put back by hand: stop the coordinator, move its "
    "training_jobs.db* away, and copy the backup to training_jobs.db in their place; then "
    "`fleet fsck` (docs/how-to/operations.md, Restore)"
)


class _Verbs(click.Group):
    """Loads a verb's module when the verb is used, so that `fleet status` starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(VERBS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f".{VERBS[cmd_name][0]}", __name__)
        command = getattr(module, cmd_name.replace("-", "_") + "_command")
        return command if isinstance(command, click.Command) else None

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem[str]]:
        """Complete verbs by the table, without loading any of them."""
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=help_)
            for name, (_, help_) in VERBS.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in VERBS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; that whoever reads its output has gone is no failure, as after `| head`."""
        try:
            return super().invoke(ctx)
        except OSError as error:  # not left to click, whose exit code would be 1
            if not is_closed_pipe(error):
                raise
            return 0

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            word = str(args[0])
            if word.lower() == "restore":
                raise click.UsageError(_RESTORE, ctx) from None
            close = _OTHER_WORDS.get(word.lower()) or meant(word, VERBS)
            if close and not isinstance(error, click.NoSuchOption):
                text = f"No such command {word!r}. Did you mean {close!r}?"
                raise click.UsageError(text, ctx) from None
            raise


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_COLUMNS},
)
@click.version_option(__version__, prog_name="fleet")
@click.option("--broker", metavar="URL", help="Address of the broker, mqtts://HOST:PORT.")
@click.option("--root", metavar="ROOT", help="Topic root.")
@click.option("--identity", metavar="DIR", help="Folder of the certificate, for mqtts.")
@click.option("--plain", is_flag=True, help="No TLS beyond this machine, on a trusted network.")
@click.option("--config", metavar="FILE", help="Configuration file.")
@click.pass_context
def fleet(ctx: click.Context, /, **where: str | bool | None) -> None:
    """Carry a plan of training jobs out across your machines, each job at most once.

    \b
    Try it:         fleet up --manifest PLAN.toml --data DIR --until-idle
    What goes on:   fleet status
    Why not:        fleet why JOB
    """  # noqa: D301 - \b is click's
    ctx.obj = where


def _complain(text: str, argv: list[str] | None, error: Exception | None = None) -> None:
    """Say on standard error what is wrong; to who asked for JSON, as an object as well."""
    for line in (f"error: {text}", *getattr(error, "__notes__", ())):
        click.echo(laid_out(printable(line), sys.stderr, indent=HANG), err=True)
    _answer_in_json(text, argv, error)


def _complain_of_usage(error: click.ClickException) -> None:
    """Say what was typed wrongly, and where the help is."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)  # nothing was typed wrongly
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        help_ = f"Try '{context.command_path} --help' for help."
        click.echo(f"{context.get_usage()}\n{help_}\n", err=True)
    text = f"error: {printable(error.format_message())}"
    click.echo(laid_out(text.expandtabs(2), sys.stderr, indent=HANG), err=True)


def _answer_in_json(
    text: str, argv: list[str] | None, error: Exception | None = None
) -> None:  # fmt: skip
    """Print that it was not done, where that was asked for: a script reads no empty answer."""
    given = sys.argv[1:] if argv is None else argv
    if "--json" in given[: given.index("--") if "--" in given else None]:
        from coordinator.ui.words import print_json

        with contextlib.suppress(OSError):  # what is wrong may be that nothing can be written
            why, errors = getattr(error, "why", None), getattr(error, "errors", [])
            print_json({"ok": False, "message": printable(text), "why": why, "errors": errors})


def _no_request(error: ValueError) -> str:
    """Say what was typed that no request can hold; any other error is a fault, and raised."""
    from pydantic import ValidationError

    from broker.protocol.value_faults import fault_words

    if isinstance(error, UnicodeEncodeError):
        return "no request can hold that: it is no text in UTF-8"
    if not isinstance(error, ValidationError):
        raise error
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part not in _KINDS)
    return f"no request can hold that: {where}: {fault_words(first, ())}"


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that a terminal lacks is no error; a pipe or a file of Windows lacks none.
            stream.reconfigure(encoding="utf-8" if os.name == "nt" else None, errors="replace")
    try:
        result = fleet.main(argv, prog_name="fleet", standalone_mode=False)
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        _complain_of_usage(error)
        _answer_in_json(error.format_message(), argv)
        return error.exit_code
    except FleetError as error:
        _complain(str(error), argv, error)
        if isinstance(error, Unreachable):
            return EXIT_UNREACHABLE
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_REFUSED
    except OSError as error:
        _complain(plain(error), argv)
        return EXIT_REFUSED
    except ValueError as error:
        _complain(_no_request(error), argv)
        return EXIT_USAGE
    except RuntimeError as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        return EXIT_INTERRUPTED  # it fell into a wait, which gave back a lock that it had not
    return result if isinstance(result, int) else 0
