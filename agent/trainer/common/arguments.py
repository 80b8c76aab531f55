"""The command line of `run` and `run_ssl`, generated from the hyperparameter models."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from agent.trainer.common import config
from agent.trainer.common.errors import BadInputError
from agent.trainer.common.progress import Progress

# The files' names are written out here too, so that `--help` need not load what reads them.
_FILES = {
    "validation": "validation_v1.parquet",
    "summary": "features_window_v1.parquet",
    "tensors": "tensor_window_v1",
    "schema": "feature_schema_v1.json",
}


DEFAULT_CHECKPOINT_EVERY_S: Final = 300
MAX_SEED: Final = 2**32 - 1  # as in a manifest


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
    train_hosts: tuple[str, ...]
    seed: int
    n_resamples: int
    target_fpr: float
    threads: int
    hyper: config.Hyper
    checkpoint_dir: Path | None = None
    checkpoint_every_s: int = 0
    resume: bool = False

    def identity(self) -> dict[str, object]:
        """Return what the result depends on, beside the data and the machine."""
        return {
            "model": self.model,
            "mode": self.mode,
            "split_recipe": self.split_recipe,
            "train_hosts": list(self.train_hosts),
            "seed": self.seed,
            "hyper": self.hyper.model_dump(),
        }


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers that are not below `least`, nor above `most`."""
    wanted = f"{least} or more" if most is None else f"{least} to {most}"

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"must be a whole number of {wanted}")
        return int(text)

    return parse


def parse_job(argv: Sequence[str] | None, module: str) -> Job:
    """Parse the command line of `module`. Exits with code 2 and an error event if it is wrong."""
    parser = _parser(module)
    args = vars(parser.parse_args(argv))
    try:
        return _job(args)
    except BadInputError as error:
        parser.error(str(error))


def _job(args: Mapping[str, object]) -> Job:
    given = {name: value for name, value in args.items() if value is not None}
    model = str(given["model"])
    hyper = _hyper(model, given)
    paths = {name: _path(name, given) for name in _FILES}
    out_dir = Path(str(given["out_dir"]))
    return Job(
        model=model,
        mode=str(given["mode"]),
        **paths,
        out_dir=out_dir,
        reports_dir=Path(str(given.get("reports_dir", out_dir))),
        split_recipe=str(given["split_recipe"]),
        train_hosts=tuple(filter(None, str(given.get("train_hosts", "")).split(","))),
        seed=_int(given["seed"]),
        n_resamples=_int(given["n_resamples"]),
        target_fpr=_target_fpr(hyper, given),
        threads=_int(given.get("threads") or default_threads()),
        hyper=hyper,
        checkpoint_dir=_optional_path(given.get("checkpoint_dir")),
        checkpoint_every_s=_int(given["checkpoint_every_s"]),
        resume=bool(given["resume"]),
    )


def _optional_path(value: object) -> Path | None:
    return None if value is None else Path(str(value))


def _int(value: object) -> int:
    assert isinstance(value, int)  # noqa: S101 - the parser made it one
    return value


def _hyper(model: str, given: Mapping[str, object]) -> config.Hyper:
    known = config.TRAINERS[model].hyper
    values = {name[len("hyper_") :]: v for name, v in given.items() if name.startswith("hyper_")}
    unknown = sorted(set(values) - set(known.model_fields) - {"target_fpr"})
    if unknown:
        flags = ", ".join(config.flag_of(field) for field in known.model_fields)
        raise BadInputError.at(
            "command line", config.flag_of(unknown[0]), f"{model} has none", f"it has {flags}"
        )
    if "target_fpr" not in known.model_fields:
        values.pop("target_fpr", None)
    return _checked(known, values)


def _checked(model: type[config.Hyper], values: Mapping[str, object]) -> config.Hyper:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        flag = config.flag_of(str(first["loc"][0]))
        message = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        raise BadInputError.at(
            "command line", flag, f"{first['input']!r} is out of range", message
        ) from error


class _RunParameters(config.Hyper):
    """What any trainer may be told beside its hyperparameters."""

    target_fpr: config.TargetFpr = config.DEFAULT_TARGET_FPR


def _target_fpr(hyper: config.Hyper, given: Mapping[str, object]) -> float:
    own = getattr(hyper, "target_fpr", None)
    if own is not None:
        return float(own)
    values = {"target_fpr": given["hyper_target_fpr"]} if "hyper_target_fpr" in given else {}
    checked = _checked(_RunParameters, values)
    assert isinstance(checked, _RunParameters)  # noqa: S101 - it is what was asked for
    return checked.target_fpr


def _path(name: str, given: Mapping[str, object]) -> Path:
    if name in given:
        return Path(str(given[name]))
    if "data" in given:
        return Path(str(given["data"])) / _FILES[name]
    raise BadInputError.at("command line", f"--{name}", "is missing", "give it, or --data DIR")


def default_threads() -> int:
    """Return OMP_NUM_THREADS, or else the number of processors that this process may use."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line as an event, too, where a program has started the trainer."""

    def error(self, message: str) -> NoReturn:
        if not sys.stdout.isatty():  # a person reads the other line
            Progress(sys.stdout).error("bad_input", message)
        remedy = f"python -m {self.prog} --help tells what there is"
        self.exit(config.EXIT_BAD_INPUT, f"error: {message}\n{remedy}\n")


def _parser(module: str) -> argparse.ArgumentParser:
    models = [name for name, spec in config.TRAINERS.items() if spec.module == module]
    parser = _Parser(
        prog=module,
        description="Train a model, evaluate it on what it was not trained on, and save both.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad input, 75 interrupted by SIGTERM.",
    )
    add = parser.add_argument
    others = {spec.module for spec in config.TRAINERS.values()} - {module}
    elsewhere = ", ".join(
        f"{name}: python -m {spec.module}"
        for name, spec in config.TRAINERS.items()
        if spec.module in others
    )
    add("--model", required=True, choices=models, help=f"Which one; for {elsewhere}.")
    add("--mode", required=True, choices=config.MODES, help="Which channels may be seen.")
    add("--data", help="Folder that prepare wrote; stands for the next four.")
    add("--validation", help=f"Index of windows ({_FILES['validation']}).")
    add("--summary", help=f"Summary features ({_FILES['summary']}).")
    add("--tensors", help=f"Folder of raw series ({_FILES['tensors']}).")
    add("--schema", help=f"Their description ({_FILES['schema']}).")
    add("--out-dir", required=True, help="Folder for the model.")
    add("--reports-dir", help="Folder for the report (default: --out-dir).")
    add(
        "--split-recipe",
        choices=config.SPLIT_RECIPES,
        default="host",
        help="What is held out: whole hosts (default), blocks of samples, or the last of the time.",
    )
    add("--train-hosts", metavar="A,B", help="Hosts to train on (default: drawn by the seed).")
    add("--seed", type=at_least(0, MAX_SEED), default=0, help="Of the split and the training (0).")
    add(
        "--n-resamples",
        type=at_least(0),
        default=config.DEFAULT_N_RESAMPLES,
        help=f"Bootstrap resamples ({config.DEFAULT_N_RESAMPLES}).",
    )
    add("--threads", type=at_least(1), help="Processor threads (default: OMP_NUM_THREADS or all).")
    add("--checkpoint-dir", help="Folder to keep a checkpoint in; none is kept without.")
    add(
        "--checkpoint-every-s",
        type=at_least(0),
        default=DEFAULT_CHECKPOINT_EVERY_S,
        help=f"Seconds between checkpoints ({DEFAULT_CHECKPOINT_EVERY_S}); 0: at SIGTERM alone.",
    )
    add("--resume", action="store_true", help="Go on from the checkpoint, if there is one.")
    group = parser.add_argument_group("hyperparameters")
    for field, help_text in _fields(models).items():
        group.add_argument(
            config.flag_of(field), dest=f"hyper_{field}", metavar="N", help=help_text
        )
    return parser


def _fields(models: Sequence[str]) -> dict[str, str]:
    """Return the help of each hyperparameter of `models`, with its default for each of them."""
    described = {model: config.TRAINERS[model].hyper.model_fields for model in models}
    if not any("target_fpr" in fields for fields in described.values()):
        described["any"] = _RunParameters.model_fields
    helps = {}
    for name in dict.fromkeys(name for fields in described.values() for name in fields):
        having = {of: fields[name] for of, fields in described.items() if name in fields}
        helps[name] = _help(having, everywhere=having.keys() >= {*models} or "any" in having)
    return helps


def _help(fields: Mapping[str, FieldInfo], *, everywhere: bool) -> str:
    """Return what a hyperparameter is and its default, by model where models differ."""
    texts = {of: str(field.description).rstrip(".") for of, field in fields.items()}
    defaults = {of: str(field.default) for of, field in fields.items()}
    return f"{_by_model(texts, everywhere=True)}. [{_by_model(defaults, everywhere=everywhere)}]"


def _by_model(values: Mapping[str, str], *, everywhere: bool) -> str:
    """Return the one value that all models have, or each with the models that have it."""
    having: dict[str, list[str]] = {}
    for of, value in values.items():
        having.setdefault(value, []).append(of)
    if len(having) == 1 and everywhere:
        return next(iter(having))
    return "; ".join(f"{', '.join(models)}: {value}" for value, models in having.items())
