"""Score telemetry with a stored model.

    python -m agent.trainer.predict --bundle BUNDLE --raw FILE --out scores.csv

Only the channels that the model takes are read. `--out` gets a row a window: host, episode, start
(t), `score` (how anomalous), `p_<class>` (probabilities of several classes, or of a linear probe),
`called` (the class), `alarm` (at the target false-positive rate). Memory does not grow with the
file. Standard output carries JSON lines; on a terminal, and with `--words`, a line for people.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pydantic import BaseModel

from agent.trainer.common.arguments import at_least, default_threads
from agent.trainer.common.arrays import Floats
from agent.trainer.common.errors import BadInputError
from agent.trainer.common.progress import Interruption, Progress, as_json, program
from agent.trainer.data.raw_file import RawFile
from agent.trainer.data.schema import Channel, RawSchema, read_json
from agent.trainer.data.windows import Labelling, cut_windows
from agent.trainer.inference.stored_model import StoredModel, load_model
from agent.trainer.models.description import Description
from agent.trainer.run import bind_threads

_BATCH: Final = 512  # windows


def predict(model: StoredModel, raw: Path) -> Iterator[pa.Table]:
    """Yield a table of scores for each block of rows in `raw`. Raises BadInputError."""
    told = model.description
    _check_period(told, raw)
    channels = {name: Channel(name=name, modes=("oracle",)) for name in told.channels}
    schema = RawSchema(label=None, period_s=1, channels=channels)
    file = RawFile(raw, schema, others=True)
    outline = file.outline()
    longest = max(entry.length for entry in outline.episodes)
    if longest < told.window:
        problem = f"no episode has the model's {told.window} rows"
        raise BadInputError.at(raw, "episode", problem, "give it longer ones")
    rows = file.rows(outline, ())
    for block in cut_windows(rows, told.window, told.stride, Labelling("unlabelled", ())):
        if not len(block.windows):
            continue
        pieces = [
            model.score(np.ascontiguousarray(block.windows[at : at + _BATCH]))
            for at in range(0, len(block.windows), _BATCH)
        ]
        scores = {name: np.concatenate([one[name] for one in pieces]) for name in pieces[0]}
        count = len(block.windows)
        keys = {
            "host": pa.array([block.entry.host] * count),
            "episode": pa.array([block.entry.episode] * count),
            "start": pa.array(block.entry.start + block.starts),
        }
        yield pa.table(keys | scores | _verdicts(told, scores))


class _Period(BaseModel):
    """The part of a raw schema that is compared with the model's."""

    period_s: float | None = None


def _check_period(told: Description, raw: Path) -> None:
    """Raise BadInputError if a schema beside `raw` has another period than the model."""
    path = raw.with_suffix(".schema.json")
    period_s = read_json(path, _Period).period_s if path.is_file() else None
    if period_s is not None and not math.isclose(period_s, told.period_s, rel_tol=1e-6):
        problem = f"a row every {period_s:g} s, but the model was trained on one every"
        remedy = "resample the telemetry, or take a model that was trained on such"
        raise BadInputError.at(path, "period_s", f"{problem} {told.period_s:g} s", remedy)


def _verdicts(told: Description, scores: dict[str, Floats]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    several = [name for name in scores if name.startswith("p_")]
    if told.task == "multiclass" and several:
        best = np.stack([scores[name] for name in several]).argmax(axis=0)
        found["called"] = np.array(told.classes)[best]
    elif told.thresholds.decision is not None:
        positive = scores["score"] >= told.thresholds.decision
        found["called"] = np.where(positive, told.classes[1], told.classes[0])
    if told.thresholds.alarm is not None and "score" in scores:
        found["alarm"] = scores["score"] > told.thresholds.alarm
    return found


def write(tables: Iterator[pa.Table], out: Path) -> int:
    """Write the tables to a .parquet or .csv file, whole or not at all; return the rows."""
    making, rows, writer = out.with_name(f".{out.name}.part"), 0, None
    try:
        for table in tables:
            if writer is None:
                kind = pa_csv.CSVWriter if out.suffix == ".csv" else pq.ParquetWriter
                writer = kind(making, table.schema)
            writer.write_table(table)
            rows += len(table)
        if writer is not None:
            writer.close()
            making.replace(out)
    finally:
        making.unlink(missing_ok=True)
    return rows


def _check_out(out: Path, raw: Path) -> None:
    """Raise BadInputError for a place where no scores can be written, before the work begins."""
    if out.suffix not in {".csv", ".parquet"}:
        raise BadInputError.at(out, "--out", "is neither .csv nor .parquet", "name it so")
    if not out.parent.is_dir():
        raise BadInputError.at(out, "--out", "its folder is not there", "make it first")
    if out.exists() and raw.exists() and out.samefile(raw):
        raise BadInputError.at(out, "--out", "is the telemetry", "choose another")


def _in_words(event: Mapping[str, Any]) -> str:
    """Return the line for a person: of the result, an error, or a log message."""
    match event["event"]:
        case "result":
            count, files = event["metrics"]["windows"], ", ".join(event["files"])
            return f"{count:,} {'window' if count == 1 else 'windows'} scored: {files}\n"
        case "error":
            return f"error: {event['message']}\n"
        case "log":
            return f"{event['message']}\n"
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="agent.trainer.predict",
        description="Score telemetry with a stored model.",
        epilog="Example: fleet get gru-oracle -o models && python -m agent.trainer.predict "
        "--bundle models/gru-oracle --raw new.parquet --out scores.csv",
    )
    paths = {
        "--bundle": "What `fleet get` brought: bundle.tar.zst, or its folder.",
        "--raw": "Telemetry: .parquet or .csv.",
        "--out": "Scores: .parquet or .csv.",
    }
    for flag, text in paths.items():
        parser.add_argument(flag, type=Path, required=True, help=text)
    parser.add_argument("--threads", type=at_least(1), default=default_threads())
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="JSON lines on a terminal, too.")
    form.add_argument("--words", action="store_true", help="Words for people elsewhere, too.")
    args = parser.parse_args(argv)
    bind_threads(args.threads)
    words = args.words or (sys.stdout.isatty() and not args.json)

    def work(progress: Progress, _: Interruption) -> None:
        _check_out(args.out, args.raw)
        progress.phase("load")
        model = load_model(args.bundle, args.threads)
        progress.phase("evaluate")
        rows = write(predict(model, args.raw), args.out)
        progress.result({"windows": rows}, [str(args.out)])

    return program(work, _in_words if words else as_json)


if __name__ == "__main__":
    sys.exit(main())
