"""`fleet run`: one job beside the manifest."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from broker.errors import LocalError
from broker.protocol.messages import AskRun, AskTrainers
from broker.protocol.topic_table import Kind
from broker.system.machine import new_id
from broker.wrapping import quoted
from coordinator.client.contact import NotDone
from coordinator.jobs.causes import in_words
from coordinator.jobs.titles import is_path, meant
from coordinator.ui import EXIT_REFUSED
from coordinator.ui.candidates import (
    complete_host,
    complete_job,
    complete_model,
    complete_pushed,
    models_of_hosts,
)
from coordinator.ui.options import PATH, OperatorClient, Where, asking, flag, option
from coordinator.ui.progress import transfer
from coordinator.ui.words import is_json, print_json, say

# option -> key of a [[jobs]] table, where they are not called alike
_KEYS = {"on": "allowed_hosts", "not_on": "denied_hosts", "train_host": "train_hosts",
         "split": "split_recipe", "input": "inputs"}  # fmt: skip


def _pairs(values: tuple[str, ...], example: str, *, may_be_empty: bool = False) -> dict[str, str]:
    """Return what texts such as KEY=VALUE say."""
    found: dict[str, str] = {}
    for text in values:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not key or not (value or (equals and may_be_empty)):
            raise click.BadParameter(f"{text!r}: write {example}")
        if key in found:
            raise click.BadParameter(f"{key} is said twice")
        found[key] = value
    return found


def _named(example: str, *, may_be_empty: bool = False) -> Callable[..., dict[str, str]]:
    """Return a callback for options such as `example`."""
    return lambda _ctx, _option, values: _pairs(values, example, may_be_empty=may_be_empty)


def _typed(
    client: OperatorClient, model: str | None, program: str, texts: dict[str, str]
) -> dict[str, Any]:
    """Return parameters, read as TOML, or left as they are where that alone is allowed."""
    from broker.protocol import hyperschema

    values = {key: _value(text) for key, text in texts.items()}
    if values == texts or not hyperschema.is_json(
        values
    ):  # what no request bears is told when it is made
        return values
    trainers = client.ask(AskTrainers(id=new_id()))["trainers"]
    found = [model] if model else meant(program, [one for one in trainers if "@" in one])
    schema = trainers.get(found[0], {}).get("hyper_schema", {}) if found else {}
    wrong, unread = (
        {key for key, _ in hyperschema.check_hyper(one, schema, "")} for one in (values, texts)
    )
    return values | {key: texts[key] for key in (wrong - unread) & texts.keys()}


def _value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    known = isinstance(value, str | int | float | bool | list | dict)
    return value if known else text


def _no_model(ctx: click.Context) -> click.UsageError:
    there = models_of_hosts(ctx)
    whose = "the fleet's hosts have"
    if not there:
        from coordinator.manifest.builtin import builtin_trainers

        there, whose = sorted(builtin_trainers()), "no host could be asked; built in are"
    text = f"Missing option '--model': {whose} {', '.join(there)}"
    example = f"fleet run --model {quoted(there[0])} --mode oracle"
    return click.UsageError(f"{text}\nfor example: `{example}`", ctx)


def _no_option(word: str) -> click.NoSuchOption:
    """Say which option may be meant, as click does where it knows all of them."""
    from broker.protocol.hyperschema import meant

    context = click.get_current_context()
    near = meant(word, [name for one in context.command.params for name in one.opts])
    return click.NoSuchOption(word, possibilities=[near] if near else None, ctx=context)


def _parameters(words: Sequence[str]) -> dict[str, str]:
    """Return a program's parameters from `--lr 0.001` and `--lr=0.001`."""
    found: dict[str, str] = {}
    left = iter(words)
    for word in left:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise click.UsageError(f"{word!r}: write --PARAMETER VALUE after the program")
        text = value if equals else next(left, None)
        if text is None:
            raise click.UsageError(f"{word} needs a value")
        found[name.replace("-", "_")] = text
    return found


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="[PROGRAM [--PARAMETER VALUE]...]", nargs=-1,
                type=click.UNPROCESSED)  # fmt: skip
@option("--model", "MODEL",
        "The trainer, where it is no program.", shell_complete=complete_model)  # fmt: skip
@click.option("--mode", type=click.Choice(["realistic", "oracle"]),
              help="Which channels of the prepared data it may see, if it reads some.")  # fmt: skip
@option("-H --hyper", "KEY=VALUE", "A parameter of the trainer; may be given several times.",
        multiple=True,
        callback=_named("KEY=VALUE, such as -H max_depth=4", may_be_empty=True))  # fmt: skip
@option("--data", "NAME=DATASET", "What it reads: a dataset, or a folder to push as NAME first.",
        multiple=True, callback=_named("NAME=DATASET, such as train=cifar"),
        shell_complete=complete_pushed)  # fmt: skip
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
@option("--split", "RECIPE", "How test data is held out: host, sample, time, folds.")
@option("--folds", "K", "How many folds.", type=int)
@option("--fold", "N", "Only this one, counted from 1.", type=int)
@option("--train-host", "NAME", "Telemetry hosts to train on.", multiple=True)
@option("--n-resamples", "N", "Bootstrap resamples.", type=int)
@option("--timeout-s", "SECONDS", "Most time for the trainer.", type=float)
@option("--stall-timeout-s", "SECONDS", "Most time without output of the trainer.", type=float)
@click.option("--on-lost", type=click.Choice(["keep", "stop"]),
              help="What the agent does with the trainer when its lease ends.")  # fmt: skip
@option("--retries", "N", "Tries after a failure that may pass.", type=int)
@option("--after", "JOB", "Start once this job is completed; may be given several times.",
        multiple=True, shell_complete=complete_job)  # fmt: skip
@option("--input", "NAME=JOB", "What that job has made; the program gets it as --input.NAME=DIR.",
        multiple=True, callback=_named("NAME=JOB, such as --input weights=pretrain"))  # fmt: skip
@flag("--wait", "Wait, and say what came of it; exit code 0 if it completes.")
@option("--get", "DIR", "Wait, then fetch the result into DIR.", type=PATH)
@asking
def run_command(
    *,
    at: Where,
    words: tuple[str, ...],
    data: dict[str, str],
    wait: bool,
    get: Path | None,
    **options: Any,
) -> int:
    """Have one job trained that is in no manifest.

    PROGRAM is a folder with a program.toml, which is pushed first, or NAME[@DIGEST] of one that
    has been pushed. What follows it and is no option of `fleet run` is a parameter of the program.

    It is checked as one of the manifest is, and has the same id; the manifest's [defaults] do not
    apply. It stays when the manifest is reloaded, until it is over or cancelled. Asked for again,
    it is there already.

    With --json it prints one object: the job, with --wait as it ended, and with --get also the
    `path` and the `files` of what was fetched.

    \b
    Examples:
      fleet run --model gbt --mode realistic -H max_depth=4 --wait
      fleet run --model mlp --mode oracle --min-ram-gib 8 --get models
      fleet run ./vision --lr 0.001 --data train=./cifar10 --wait
      fleet run ./vision --lr 0.0001 --input weights=pretrain
    """  # noqa: D301 - \b is click's
    if words and words[0].startswith("-"):
        raise _no_option(words[0])
    if options["model"] is None and not words:
        raise _no_model(click.get_current_context())
    waits = wait or get is not None
    with at.connect(*((Kind.JOB,) if waits else ())) as client:
        try:
            table = _table(options) | (_program(at, words) if words else {})
            for key in {"hyper", "parameters"} & table.keys():
                table[key] = _typed(client, options["model"], table.get("program", ""), table[key])
            if data:
                table["data"] = {name: _title(at, name, text) for name, text in data.items()}
            told = client.ask(AskRun(id=new_id(), job=table))
        except NotDone as refusal:
            for one in refusal.errors:
                refusal.add_note(f"  {_option(one['key'])}: {in_words(one['why'])}")
            raise
        _say(told, quiet=is_json())
        if get is not None and (get / told["name"]).exists():
            raise LocalError(f"{get / told['name']} exists already; remove it, or name another DIR")
        row = told
        if waits:
            from coordinator.ui.follow import in_fields, until_over

            fetches = get is not None
            row = in_fields(until_over(client, told["job_id"], quiet=is_json(), fetches=fetches))
    is_there = row["state"] == "completed"
    if get is not None and is_there:
        from coordinator.cli.results import fetch

        with at.connect() as client:
            got = fetch(client, row["job_id"], get)
        row |= got.in_fields()
        if not is_json():
            got.say()
    if is_json():
        print_json(row)
    return 0 if is_there or not waits else EXIT_REFUSED


def _table(options: dict[str, Any]) -> dict[str, Any]:
    """Return what a [[jobs]] table would hold; what was not said is not in it."""
    return {
        _KEYS.get(name, name): list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if value not in (None, (), {}) and value is not False
    }


def _program(at: Where, words: Sequence[str]) -> dict[str, Any]:
    """Return what a [[jobs]] table would hold of a program; a folder is pushed first."""
    program, parameters = words[0], _parameters(words[1:])
    if is_path(program):
        from coordinator.client.program_push import push

        program = push(at.connect, Path(program), transfer).title
    return {"program": program} | ({"parameters": parameters} if parameters else {})


def _title(at: Where, name: str, text: str) -> str:
    """Return the dataset that is meant; a folder is pushed as `name` first."""
    if not is_path(text):
        return text
    from coordinator.client.dataset_push import push_data

    return push_data(at.connect, name, Path(text), transfer).title


def _option(key: str) -> str:
    """Return the option that a key of the table was said by."""
    table, _, name = key.partition(".")
    options = {"parameters": "--", "hyper": "-H ", "inputs": "--input ", "data": "--data "}
    if name and table in options:
        return options[table] + name
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
