"""Score telemetry with a stored model.

    python -m agent.trainer.predict --bundle BUNDLE --raw FILE --out scores.csv

Only the channels that the model takes are read. `--out` gets a row a window: host, episode, start
(t), `score` (how anomalous), `p_<class>` (probabilities of several classes, or of a linear probe),
`called` (the class), `alarm` (by the threshold of all hosts), `host_threshold` and `host_alarm` (by
the host's own past). Memory does not grow with the file. Standard output carries JSON lines; on a
terminal, and with `--words`, a line for people.

    ... | python -m agent.trainer.predict --bundle BUNDLE --stream | ...

takes rows on standard input and gives each window's score on standard output at once. In Python:

    from agent.trainer.inference.scoring import score
    table = score("models/gru-oracle", frame)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TextIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from agent.trainer.common.arguments import at_least, default_threads
from agent.trainer.common.errors import BadInputError
from agent.trainer.common.files import move
from agent.trainer.common.progress import Progress, as_json, own_output, run_reported
from agent.trainer.inference.scoring import predict
from agent.trainer.inference.stored_model import StoredModel, load_model
from agent.trainer.inference.stream import BadRowError, Stream, rows_of
from agent.trainer.run import bind_threads


def stream(model: StoredModel, rows: IO[bytes], out: TextIO, progress: Progress) -> None:
    """Score rows as they come, until there are no more; write a line of JSON a window."""
    scored = Stream(model)

    def complain(text: str) -> None:
        progress.log(text)
        scored.lose()

    for number, row in rows_of(rows, model.description.channels, complain):
        try:
            found = scored.push(row)
        except BadRowError as error:
            progress.log(f"line {number}: {error}; it is left out")
            continue
        if found is not None:
            out.write(as_json(found))
            out.flush()


def write(tables: Iterator[pa.Table], out: Path) -> int:
    """Write the tables to a .parquet or .csv file, whole or not at all; return the rows."""
    making, rows, writer = out.with_name(f".{out.name}.part"), 0, None
    try:
        # Ours to close: pyarrow's writer of CSV leaves a file that it has opened open.
        with making.open("wb") as file:
            for table in tables:
                if writer is None:
                    kind = pa_csv.CSVWriter if out.suffix == ".csv" else pq.ParquetWriter
                    writer = kind(file, table.schema)
                writer.write_table(table)
                rows += len(table)
            if writer is not None:
                writer.close()
        if writer is not None:
            move(making, out)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent.trainer.predict",
        description="Score telemetry with a stored model.",
        epilog="Example: fleet get gru-oracle -o models && python -m agent.trainer.predict "
        "--bundle models/gru-oracle --raw new.parquet --out scores.csv",
    )
    text = "What `fleet get` brought: bundle.tar.zst, or its folder."
    parser.add_argument("--bundle", type=Path, required=True, help=text)
    parser.add_argument("--raw", type=Path, help="Telemetry: .parquet or .csv.")
    parser.add_argument("--out", type=Path, help="Scores: .parquet or .csv.")
    text = "Rows on standard input, JSON lines or CSV; scores on standard output, a line each."
    parser.add_argument("--stream", action="store_true", help=text)
    parser.add_argument("--threads", type=at_least(1), default=default_threads())
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="JSON lines on a terminal, too.")
    form.add_argument("--words", action="store_true", help="Words for people elsewhere, too.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.stream == (args.raw is not None) or (args.raw is None) != (args.out is None):
        parser.error("give --raw and --out, or --stream")
    bind_threads(args.threads)
    told = sys.stderr if args.stream else sys.stdout
    form = _in_words if args.words or (told.isatty() and not args.json) else as_json
    output = own_output()  # of a stream the scores, of a file the events

    def score_stream(progress: Progress) -> None:
        model = load_model(args.bundle, args.threads)
        with suppress(BrokenPipeError, KeyboardInterrupt):  # whoever read, or wrote, is gone
            stream(model, sys.stdin.buffer, output, progress)

    def score_file(progress: Progress) -> None:
        _check_out(args.out, args.raw)
        progress.phase("load")
        model = load_model(args.bundle, args.threads)
        progress.phase("evaluate")
        rows = write(predict(model, args.raw), args.out)
        progress.result({"windows": rows}, [str(args.out)])

    if args.stream:
        return run_reported(Progress(sys.stderr, form=form), score_stream)
    return run_reported(Progress(output, form=form), score_file)


if __name__ == "__main__":
    sys.exit(main())
