"""The command line of `run` and `run_ssl`, generated from the hyperparameter models."""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from agent.trainer.common import config
from agent.trainer.common.errors import BadInputError
from agent.trainer.common.progress import Progress

# Repeated from agent.trainer.data.schema, so that `--help` need not import what reads them.
_FILES: Final = {
    "validation": ("validation_v1.parquet", "Index of windows"),
    "summary": ("features_window_v1.parquet", "Summary features"),
    "tensors": ("tensor_window_v1", "Folder of raw series"),
    "schema": ("feature_schema_v1.json", "Their description"),
}
DEFAULT_CHECKPOINT_EVERY_S: Final = 300
MAX_SEED: Final = 2**32 - 1  # as in a manifest
_HYPER: Final = "hyper_"  # prefix of the parsed names of hyperparameters


@dataclass(frozen=True)
class Job:
    """One training run: what to train, on what, split how, and where the results go."""

    model: str
    mode: str
    validation: Path
    summary: Path
    tensors: Path
    schema: Path
    out_dir: Path
    reports_dir: Path
    split_recipe: str
    folds: int
    fold: int
    train_hosts: tuple[str, ...]
    seed: int
    n_resamples: int
    threads: int
    hyper: config.Hyper
    checkpoint_dir: Path | None
    checkpoint_every_s: int
    resume: bool


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers that are not below `least`, nor above `most`."""
    wanted = f"{least} or more" if most is None else f"{least} to {most}"

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"must be a whole number of {wanted}")
        return int(text)

    return parse


def default_threads() -> int:
    """Return OMP_NUM_THREADS, or else the number of processors that this process may use."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse_job(argv: Sequence[str] | None, module: str) -> Job:
    """Parse the command line of `module`. Exits with code 2 and an error event if it is wrong."""
    parser = _parser(module)
    args = vars(parser.parse_args(argv))
    try:
        return _job(args)
    except BadInputError as error:
        parser.error(str(error))


def _job(args: dict[str, Any]) -> Job:
    names = [name for name in args if name.startswith(_HYPER)]
    given = {name.removeprefix(_HYPER): args.pop(name) for name in names}
    data = args.pop("data")
    for name, (file, _) in _FILES.items():
        if args[name] is None and data is None:
            problem, remedy = "is missing", "give it, or --data DIR"
            raise BadInputError.at("command line", f"--{name}", problem, remedy)
        args[name] = args[name] or data / file
    args["reports_dir"] = args["reports_dir"] or args["out_dir"]
    args["train_hosts"] = _hosts(args["train_hosts"])
    if args["fold"] > args["folds"]:
        problem, remedy = f"there are {args['folds']} folds", "give more --folds, or an earlier one"
        raise BadInputError.at("command line", "--fold", problem, remedy)
    return Job(**args, hyper=_hyper(args["model"], given))


def _hosts(text: str) -> tuple[str, ...]:
    """Return the names in a line of CSV. Raises BadInputError."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        remedy = 'put a name with a comma between quotes: "a, b"'
        raise BadInputError.at("command line", "--train-hosts", str(error), remedy) from error
    return tuple(filter(None, itertools.chain.from_iterable(rows)))


def _hyper(name: str, values: Mapping[str, str]) -> config.Hyper:
    model = config.TRAINERS[name]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        flag = config.flag_of(str(first["loc"][0]))
        problem = f"cannot be {first['input']!r}"
        remedy = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        if first["type"] == "extra_forbidden":
            flags = ", ".join(map(config.flag_of, model.model_fields))
            problem, remedy = f"{name} has none", f"it has {flags}"
        raise BadInputError.at("command line", flag, problem, remedy) from error


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line as an event, too, where a program has started the trainer."""

    def error(self, message: str) -> NoReturn:
        if not sys.stdout.isatty():
            Progress(sys.stdout).error("bad_input", message)
        remedy = f"python -m {self.prog} --help tells what there is"
        self.exit(config.EXIT_BAD_INPUT, f"error: {message}\n{remedy}\n")


def _parser(module: str) -> argparse.ArgumentParser:
    models = [name for name, hyper in config.TRAINERS.items() if hyper.module == module]
    parser = _Parser(
        prog=module,
        allow_abbrev=False,
        description="Train a model, evaluate it on what it was not trained on, and save both.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad input, 75 ended by SIGTERM, 130 by Ctrl-C.",
    )
    others = [
        f"{name}: python -m {hyper.module}"
        for name, hyper in config.TRAINERS.items()
        if hyper.module != module
    ]
    add = parser.add_argument
    text = f"Which one; for {', '.join(others)}."
    add("--model", required=True, choices=models, help=text)
    add("--mode", required=True, choices=config.MODES, help="Which channels may be seen.")
    add("--data", type=Path, help="Folder that prepare wrote; stands for the next four.")
    for name, (file, meaning) in _FILES.items():
        add(f"--{name}", type=Path, help=f"{meaning} ({file}).")
    add("--out-dir", type=Path, required=True, help="Folder for the model.")
    add("--reports-dir", type=Path, help="Folder for the report (default: --out-dir).")
    text = "What is held out: whole hosts (default), blocks of samples, the last of the time, or "
    text += "each host once, by folds."
    add("--split-recipe", choices=config.SPLIT_RECIPES, default="host", help=text)
    text = f"How many folds, one a host at most ({config.DEFAULT_FOLDS})."
    folds = at_least(2, config.MAX_FOLDS)
    add("--folds", type=folds, default=config.DEFAULT_FOLDS, metavar="K", help=text)
    text = "Train and test this fold alone, counted from 1; combine puts them together."
    add("--fold", type=at_least(1, config.MAX_FOLDS), default=0, metavar="N", help=text)
    text = "Hosts to train on (default: drawn by the seed); as CSV: 'a,\"b, c\"'."
    add("--train-hosts", metavar="A,B", default="", help=text)
    text = "Of the split and the training (0)."
    add("--seed", type=at_least(0, MAX_SEED), default=0, help=text)
    text = f"Bootstrap resamples ({config.DEFAULT_N_RESAMPLES})."
    add("--n-resamples", type=at_least(0), default=config.DEFAULT_N_RESAMPLES, help=text)
    text = "Processor threads (default: OMP_NUM_THREADS or all)."
    add("--threads", type=at_least(1), default=default_threads(), help=text)
    text = "Folder to keep a checkpoint in; none is kept without."
    add("--checkpoint-dir", type=Path, help=text)
    every_s = DEFAULT_CHECKPOINT_EVERY_S
    text = f"Seconds between checkpoints ({every_s}); 0: at SIGTERM alone."
    add("--checkpoint-every-s", type=at_least(0), default=every_s, help=text)
    add("--resume", action="store_true", help="Go on from the checkpoint, if there is one.")
    group = parser.add_argument_group("hyperparameters")
    for field, text in _hyper_help(models).items():
        flag, name = config.flag_of(field), f"{_HYPER}{field}"
        group.add_argument(flag, dest=name, metavar="N", default=argparse.SUPPRESS, help=text)
    return parser


def _hyper_help(models: Sequence[str]) -> dict[str, str]:
    """Return the help of each hyperparameter: meaning and default, by model where they differ."""
    described = {model: config.TRAINERS[model].model_fields for model in models}
    texts: dict[str, dict[str, list[str]]] = {}
    for model, fields in described.items():
        for name, field in fields.items():
            text = f"{field.description} [{field.default}]"
            texts.setdefault(name, {}).setdefault(text, []).append(model)
    return {
        name: " ".join(
            text if having == list(models) else f"{', '.join(having)}: {text}"
            for text, having in of_name.items()
        )
        for name, of_name in texts.items()
    }
