"""`fleet run`: one job beside the manifest."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import click

from broker.errors import LocalError
from broker.protocol.messages import AskRun
from broker.protocol.topics import Topics
from broker.sentences import printable
from broker.system.machine import new_id
from coordinator.client.contact import NotDone
from coordinator.ui import EXIT_REFUSED
from coordinator.ui.candidates import complete_host, complete_model, models_of_hosts
from coordinator.ui.options import (
    PATH,
    connect,
    flag,
    json_option,
    option,
    timeout_option,
    where,
    where_options,
)
from coordinator.ui.words import print_json, say

# option -> key of a [[jobs]] table, where they are not called alike
_KEYS = {"on": "allowed_hosts", "not_on": "denied_hosts", "train_host": "train_hosts",
         "split": "split_recipe"}  # fmt: skip
_NO_KEYS = frozenset({"hyper", "wait", "get", "timeout", "as_json", "where"})


def _hyper(
    _ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, Any]:
    """Return hyperparameters; a value is read as TOML, and is a string if it is none."""
    found: dict[str, Any] = {}
    for text in values:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise click.BadParameter(f"{text!r}: write KEY=VALUE, such as -H max_depth=4")
        if key in found:
            raise click.BadParameter(f"{key} is said twice")
        found[key] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    known = isinstance(value, str | int | float | bool | list | dict)
    return value if known else text


def _model(ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Return the model; where none was said, say which there are."""
    if value is not None or ctx.resilient_parsing:
        return value
    there = models_of_hosts(ctx)
    whose = "the fleet's hosts have"
    if not there:
        from coordinator.manifest.builtin import builtin_trainers

        there, whose = sorted(builtin_trainers()), "no host could be asked; built in are"
    text = f"Missing option '--model': {whose} {', '.join(there)}"
    example = f"fleet run --model {shlex.quote(there[0])} --mode oracle"
    raise click.UsageError(f"{text}\nfor example: `{example}`", ctx)


@click.command("run")
@option("--model", "MODEL",
        "The trainer.  [required]", callback=_model, shell_complete=complete_model)  # fmt: skip
@click.option("--mode", required=True, type=click.Choice(["realistic", "oracle"]),
              help="Which channels it may see.")  # fmt: skip
@option("-H --hyper", "KEY=VALUE", "A hyperparameter; may be given several times.",
        multiple=True, callback=_hyper)  # fmt: skip
@option("--name", "NAME", "What to call it.  [default: MODEL-MODE-ID]")
@option("--priority", "N", "A higher one is claimed first.", type=int)
@flag("--require-cuda", "Only on a host with CUDA.")
@flag("--prefer-cuda", "On a CUDA host, if one comes free soon.")
@option("--min-ram-gib", "GIB", "RAM that must be available.", type=float)
@option("--min-vram-gib", "GIB", "VRAM that must be free.", type=float)
@option("--min-cores", "N", "Physical cores of the host.", type=int)
@option("--on", "HOST", "Only on this host, or these.", multiple=True, shell_complete=complete_host)
@option("--not-on", "HOST", "Not on this host.", multiple=True, shell_complete=complete_host)
@option("--seed", "N", "Seed of everything random.", type=int)
@option("--split", "RECIPE", "How test data is held out: host, sample, time.")
@option("--train-host", "NAME", "Telemetry hosts to train on.", multiple=True)
@option("--n-resamples", "N", "Bootstrap resamples.", type=int)
@option("--timeout-s", "SECONDS", "Most time for the trainer.", type=float)
@option("--stall-timeout-s", "SECONDS", "Most time without output of the trainer.", type=float)
@click.option("--on-lost", type=click.Choice(["keep", "stop"]),
              help="What the agent does with the trainer when its lease ends.")  # fmt: skip
@option("--retries", "N", "Tries after a failure that may pass.", type=int)
@flag("--wait", "Wait, and say what came of it; exit code 0 if it completes.")
@option("--get", "DIR", "Wait, then fetch the result into DIR.", type=PATH)
@timeout_option
@json_option
@where_options
def run_command(
    *, wait: bool, get: Path | None, timeout: float, as_json: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Have one job trained that is in no manifest.

    It is checked as one of the manifest is, and has the same id; the manifest's [defaults] do not
    apply. It stays when the manifest is reloaded, until it is over or cancelled. Asked for again,
    it is there already.

    With --json it prints one object: the job, with --wait as it ended, and with --get also the
    `path` and the `files` of what was fetched.

    \b
    Examples:
      fleet run --model gbt --mode realistic -H max_depth=4 --wait
      fleet run --model mlp --mode oracle --min-ram-gib 8 --get models
    """  # noqa: D301 - \b is click's
    at = {name: options.pop(name) for name in ("broker", "root", "identity", "plain", "config")}
    settings = where(**at)
    waits = wait or get is not None
    watch = [Topics(settings.topic_root).job("+")] if waits else []
    with connect(settings, timeout, watch=watch) as client:
        try:
            data = client.ask(AskRun(id=new_id(), job=_table(options)))
        except NotDone as refusal:
            return _refused(refusal, as_json=as_json)
        _say(data, quiet=as_json)
        if get is not None and (get / data["name"]).exists():
            raise LocalError(f"{get / data['name']} exists already; remove it, or name another DIR")
        row = data
        if waits:
            from coordinator.ui.follow import in_fields, until_over

            fetches = get is not None
            row = in_fields(until_over(client, data["job_id"], quiet=as_json, fetches=fetches))
    is_there = row["state"] == "completed"
    if get is not None and is_there:
        from coordinator.cli.get import fetch

        with connect(settings, timeout) as client:
            got = fetch(client, row["job_id"], get)
        row |= got.in_fields()
        if not as_json:
            got.say()
    if as_json:
        print_json(row)
    return 0 if is_there or not waits else EXIT_REFUSED


def _table(options: dict[str, Any]) -> dict[str, Any]:
    """Return what a [[jobs]] table would hold; what was not said is not in it."""
    table = {
        _KEYS.get(name, name): list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if value not in (None, ()) and value is not False and name not in _NO_KEYS
    }
    return table | ({"hyper": options["hyper"]} if options["hyper"] else {})


def _refused(refusal: NotDone, *, as_json: bool) -> int:
    errors = (refusal.data or {}).get("errors", [])
    if as_json:
        print_json({"ok": False, "message": str(refusal), "errors": errors})
        return EXIT_REFUSED
    say(f"error: {printable(str(refusal))}", err=True)
    for error in errors:
        say(f"  {_option(error['key'])}: {printable(error['message'])}", err=True)
    return EXIT_REFUSED


def _option(key: str) -> str:
    """Return the option that a key of the table was said by."""
    if key.startswith("hyper."):
        return f"-H {key.removeprefix('hyper.')}"
    names = {of: name for name, of in _KEYS.items()}
    return f"--{names.get(key, key).replace('_', '-')}"


def _say(data: dict[str, Any], *, quiet: bool) -> None:
    if quiet:
        return
    where_ = f" on {data['host']}" if data["host"] else ""
    there = "" if data["added"] else " there already,"
    say(f"{data['name']} ({data['job_id'][:12]}) is{there} {data['state']}{where_}")
    if data["differs"]:
        names = ", ".join(data["differs"])
        say(f"left as it is, and not as asked for now: {names}", err=True)
    if data["state"] in {"failed", "cancelled"}:
        say(f"`fleet requeue {data['name']}` tries it again", err=True)
