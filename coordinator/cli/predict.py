"""`fleet predict`: become the program that scores telemetry, with a model that is fetched first."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any, Final

import click

from broker.errors import LocalError
from coordinator.cli.serve import arguments_of, become_module, check_installed
from coordinator.ui.candidates import complete_attempt, complete_job_or_file
from coordinator.ui.options import (
    PATH,
    connect,
    json_option,
    option,
    timeout_option,
    where,
    where_options,
)

_MODULE: Final = "agent.trainer.predict"
_NEEDED: Final = ("numpy", "pyarrow")  # whatever the model


@click.command("predict")
@click.argument("job", metavar="JOB|BUNDLE", shell_complete=complete_job_or_file)
@option("--raw", "FILE", "Telemetry to score: .parquet or .csv.", required=True, type=PATH)
@option("--out", "FILE", "Where the scores go: .parquet or .csv.", required=True, type=PATH)
@option("--attempt", "N", "With what attempt N of a job has brought.",
        type=click.IntRange(1), shell_complete=complete_attempt)  # fmt: skip
@option("--threads", "N", "Threads to use.", type=click.IntRange(1))
@timeout_option
@json_option
@where_options
def predict_command(
    job: str, raw: Path, out: Path, attempt: int | None, threads: int | None, timeout: float,
    as_json: bool, **at: Any,
) -> int:  # fmt: skip
    """Score telemetry with a trained model.

    BUNDLE is what `fleet get` has brought: the folder, or the archive of `fleet get --raw`. A JOB's
    model is fetched for this once, and not kept. What stands in the file of scores:
    docs/reference/trainers.md.

    \b
    Examples:
      fleet predict gbt-oracle --raw new.parquet --out scores.csv
      fleet predict models/gbt-oracle --raw new.parquet --out scores.csv
    """  # noqa: D301 - \b is click's
    check_installed(_MODULE)
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise LocalError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed here: "
            "pip install 'training-fleet[trainers]', or score where the models are trained"
        )
    form = "json" if as_json else "words"
    options = {"raw": raw, "out": out, "threads": threads, form: True}
    bundle = Path(job)
    if bundle.exists():
        if attempt is not None:
            raise click.UsageError(f"--attempt: of a job, and {job} is a bundle here")
        return become_module(_MODULE, {"bundle": bundle, **options})
    from coordinator.cli.get import fetch
    from coordinator.ui.processes import carry_out

    with tempfile.TemporaryDirectory(prefix="fleet-predict-") as folder:
        with connect(where(**at), timeout) as client:
            got = fetch(client, job, Path(folder), attempt=attempt)
        return carry_out(_MODULE, arguments_of({"bundle": got.target, **options}))
