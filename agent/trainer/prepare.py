"""Turn raw telemetry into what the trainers read (docs/reference/trainers.md).

    python -m agent.trainer.prepare --raw FILE.parquet|.csv [--schema FILE.schema.json]
        --out-dir DIR [--window 60 --stride 10]
        [--label-rule any|last|share|majority] [--label-share 0.5]

The schema is written last: if it is there, the rest is whole. The file is read as a stream, twice;
memory does not grow with it. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

import pyarrow as pa

from agent.trainer.common.arguments import at_least
from agent.trainer.common.errors import BadInputError
from agent.trainer.common.files import check_folders
from agent.trainer.common.progress import Progress, program
from agent.trainer.data.raw_file import UNLABELLED, Outline, RawFile
from agent.trainer.data.schema import (
    SCHEMA_FILE,
    SUMMARY_FILE,
    TENSORS_DIR,
    TENSORS_INDEX_FILE,
    VALIDATION_FILE,
    Feature,
    FeatureSchema,
    LabelRule,
    RawSchema,
    read_json,
    sha256_of,
    write_json,
)
from agent.trainer.data.windows import RULES, Labelling, cut_windows
from agent.trainer.data.writers import (
    INDEX,
    SeriesHashes,
    SeriesWriter,
    TableWriter,
    feature_names,
    features_of,
    index_of,
)

_LOG_EVERY_ROWS: Final = 1_000_000


def classes_of(labels: frozenset[str], schema: RawSchema, schema_path: Path) -> Labelling:
    """Return the task and the ordered classes; the positive class of a binary task is last."""
    if not labels:
        return Labelling("unlabelled", ())
    if schema.positive is not None:
        positive = str(schema.positive)
        negatives = sorted(labels - {positive})
        if positive not in labels or len(negatives) != 1:
            problem = f"the labels are {', '.join(sorted(labels))}"
            remedy = "name one of exactly two, or leave it out"
            raise BadInputError.at(schema_path, "positive", problem, remedy)
        return Labelling("binary", (negatives[0], positive))
    if labels <= {"0", "1"}:
        return Labelling("binary", ("0", "1"))
    if all(label.lstrip("-").isdecimal() for label in labels):
        return Labelling("multiclass", tuple(sorted(labels, key=int)))
    return Labelling("multiclass", tuple(sorted(labels)))


def with_rule(labelling: Labelling, rule: LabelRule | None, share: float | None) -> Labelling:
    """Return the labelling by a `rule` (None: the task's first). Raises BadInputError."""
    known = RULES[labelling.task]
    rule = known[0] if rule is None else rule
    if rule not in known:
        problem = f"{rule} is no rule for a {labelling.task} task"
        raise BadInputError.at("command line", "--label-rule", problem, f"use {', '.join(known)}")
    if (rule == "share") != (share is not None):
        problem = "is needed for --label-rule share, and for no other"
        raise BadInputError.at("command line", "--label-share", problem, "give both or neither")
    return replace(labelling, rule=rule, share=share)


def names_of(classes: Sequence[str], schema: RawSchema, schema_path: Path) -> tuple[str, ...]:
    """Return what people call the classes; 0 and 1 are normal and anomaly if nobody says else."""
    usual = {"0": "normal", "1": "anomaly"} if tuple(classes) == ("0", "1") else {}
    names = tuple((usual | schema.class_names).get(name, name) for name in classes)
    if len(set(names)) < len(names):
        raise BadInputError.at(schema_path, "class_names", "two are the same", "tell them apart")
    return names


def prepare(
    raw: Path,
    schema_path: Path,
    out_dir: Path,
    *,
    window: int,
    stride: int,
    label_rule: LabelRule | None = None,
    label_share: float | None = None,
    log: Callable[[str], None],
) -> FeatureSchema:
    """Prepare `raw` into `out_dir`; return the schema written there. Raises BadInputError."""
    schema = read_json(schema_path, RawSchema)
    file = RawFile(raw, schema)
    outline = file.outline()
    _check_lengths(raw, outline, window)
    labelling = classes_of(outline.labels, schema, schema_path)
    labelling = with_rule(labelling, label_rule, label_share)
    check_folders(out_dir)
    (out_dir / SCHEMA_FILE).unlink(missing_ok=True)
    log(f"{outline.rows} rows, {len(outline.episodes)} episodes, labels: {labelling.task}")

    counts: Counter[int] = Counter()
    hashes = SeriesHashes(raw)
    features = pa.schema([(name, pa.float32()) for name, _, _ in feature_names(schema)])
    series = SeriesWriter(out_dir / TENSORS_DIR, schema, outline)
    with (
        series,
        TableWriter(out_dir / VALIDATION_FILE, INDEX) as index,
        TableWriter(out_dir / SUMMARY_FILE, features) as summary,
    ):
        done = 0
        for block in cut_windows(file.rows(outline, labelling.classes), window, stride, labelling):
            series.append(block.fresh)
            hashes.append(block.entry, block.fresh)
            index.append(index_of(block, counts.total(), window))
            counts.update(block.labels.tolist())
            for columns in features_of(block, raw):
                summary.append(columns)
            before, done = done, done + len(block.fresh)
            if done // _LOG_EVERY_ROWS > before // _LOG_EVERY_ROWS:
                log(f"{done} of {outline.rows} rows")
        hashes.finish()

    classes = names_of(labelling.classes, schema, schema_path)
    names = [VALIDATION_FILE, SUMMARY_FILE]
    names += [f"{TENSORS_DIR}/{name}" for name in (TENSORS_INDEX_FILE, *series.files)]
    written = FeatureSchema(
        simulated=schema.simulated,
        task=labelling.task,
        window=window,
        stride=stride,
        period_s=schema.period_s,
        label_rule=labelling.rule,
        label_share=labelling.share,
        classes=classes,
        class_counts={name: counts[at] for at, name in enumerate(classes)},
        unlabelled_windows=counts[UNLABELLED],
        windows=counts.total(),
        rows=outline.rows,
        hosts=tuple(sorted({entry.host for entry in outline.episodes})),
        channels=schema.channels,
        features={
            name: Feature(channel=of, statistic=statistic, modes=schema.channels[of].modes)
            for name, of, statistic in feature_names(schema)
        },
        files={name: sha256_of(out_dir / name) for name in names},
    )
    write_json(out_dir / SCHEMA_FILE, written)
    return written


def _check_lengths(raw: Path, outline: Outline, window: int) -> None:
    shortest = min(outline.episodes, key=lambda entry: entry.length)
    if shortest.length < window:
        rows = f"host {shortest.host}, episode {shortest.episode} has {shortest.length} rows"
        problem = f"{rows}, fewer than the window's {window}"
        remedy = f"drop it, or use --window {shortest.length} or less"
        raise BadInputError.at(raw, "episode", problem, remedy)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError("must be above 0 and at most 1")
    return share


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="agent.trainer.prepare", description="Turn raw telemetry into what the trainers read."
    )
    add = parser.add_argument
    add("--raw", type=Path, required=True, help="Telemetry: .parquet or .csv.")
    add("--schema", type=Path, help="Its schema (default: the raw file's name, .schema.json).")
    add("--out-dir", type=Path, required=True, help="Folder to write into.")
    add("--window", type=at_least(2), default=60, help="Steps of a window (60).")
    add("--stride", type=at_least(1), default=10, help="Steps between windows (10).")
    text = "When a window is positive: any row is (default of two classes), the last is, or a share"
    text += " of the rows; of several classes, that of most rows (default) or of the last."
    add("--label-rule", choices=get_args(LabelRule), help=text)
    add("--label-share", type=_share, metavar="S", help="Least share of the rows, with share.")
    args = parser.parse_args(argv)

    def work(progress: Progress) -> None:
        schema_path = args.schema or args.raw.with_suffix(".schema.json")
        out: Path = args.out_dir
        written = prepare(
            args.raw,
            schema_path,
            out,
            window=args.window,
            stride=args.stride,
            label_rule=args.label_rule,
            label_share=args.label_share,
            log=progress.log,
        )
        counts = {"windows": written.windows, "unlabelled_windows": written.unlabelled_windows}
        names = [*written.files, SCHEMA_FILE]
        progress.result(
            counts | {"rows": written.rows, "class_counts": written.class_counts},
            (str(out / name) for name in names),
        )

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
