"""Raw telemetry becomes windows, labels, features and series, or one clear line says why not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.trainer import prepare as program
from agent.trainer.common.errors import BadInputError
from agent.trainer.data import raw_file
from agent.trainer.data.dataset import load_features, load_index, load_schema, open_series
from agent.trainer.data.features import STATISTICS, summarise
from agent.trainer.data.raw_file import Rows
from agent.trainer.data.schema import EpisodeEntry
from agent.trainer.data.windows import Labelling, cut_windows
from agent.trainer.simulate import simulate
from tests.harness.trainers import files_of


def _labels(data: Path) -> list[int]:
    return pq.read_table(data / "validation_v1.parquet")["label"].to_pylist()


def test_windows_lie_where_the_index_says(raw: Any) -> None:
    rows = raw.episode("a", "a/1", [0] * 23, t=100) + raw.episode("b", "b/1", [1] * 12)
    data = raw.prepare(raw.write(rows))
    schema = load_schema(data / "feature_schema_v1.json")
    index = load_index(data / "validation_v1.parquet", schema)
    assert index.offset.tolist() == [0, 5, 10, 23]
    assert pq.read_table(data / "validation_v1.parquet")["start"].to_pylist() == [100, 105, 110, 0]
    assert [index.hosts[host] for host in index.host] == ["a", "a", "a", "b"]
    series = open_series(data / "tensor_window_v1", schema, "oracle")
    hidden = series.parts[0][:, 0]
    assert series.channels == ("hidden", "seen")
    assert np.allclose(hidden, [row["hidden"] for row in rows])
    features = load_features(data / "features_window_v1.parquet", schema, "oracle")
    mean = schema.features_of("oracle").index("hidden__mean")
    expected = [hidden[at : at + 10].mean() for at in index.offset]
    assert np.allclose(features[:, mean], expected)


def test_of_several_classes_the_commonest_names_the_window(raw: Any) -> None:
    raw.schema["unlabelled"] = None
    labels = ["walk"] * 6 + ["sit"] * 9 + [None] * 5
    data = raw.prepare(raw.write(raw.episode("a", "1", labels)))
    schema = load_schema(data / "feature_schema_v1.json")
    assert schema.classes == ("sit", "walk")
    assert [schema.classes[k] if k >= 0 else None for k in _labels(data)] == ["walk", "sit", None]


def test_classes_have_the_names_that_people_know(raw: Any) -> None:
    raw.schema["class_names"] = {"0": "quiet", "7": "loud"}
    rows = raw.episode("a", "1", [0] * 10 + [7] * 20 + [9] * 10)
    schema = load_schema(raw.prepare(raw.write(rows)) / "feature_schema_v1.json")
    assert schema.classes == ("quiet", "loud", "9")
    assert set(schema.class_counts) == set(schema.classes)
    raw.schema["class_names"]["9"] = "loud"
    with pytest.raises(BadInputError, match="class_names: "):
        raw.prepare(raw.write(rows))


def test_a_named_positive_class_is_the_last(raw: Any) -> None:
    raw.schema["positive"] = "bad"
    data = raw.prepare(raw.write(raw.episode("a", "1", ["bad"] * 10 + ["good"] * 10)))
    schema = load_schema(data / "feature_schema_v1.json")
    assert (schema.task, schema.classes) == ("binary", ("good", "bad"))


def test_csv_and_parquet_give_the_same(raw: Any) -> None:
    rows = raw.episode("a", "a/1", [0, 1] * 20) + raw.episode("b", "b/1", [0] * 30)
    first = files_of(raw.prepare(raw.write(rows)))
    assert files_of(raw.prepare(raw.write(rows, ".csv"))) == first


@pytest.mark.parametrize("name", ["NA", "null", "NaN", "N/A", "nan"])
def test_a_host_may_be_called_what_some_programs_take_for_nothing(raw: Any, name: str) -> None:
    raw.schema["unlabelled"] = name
    rows = raw.episode(name, name, [0, 1] * 20) + raw.episode("b", "1", [name] * 30)
    data = raw.prepare(raw.write(rows, ".csv"))
    assert load_schema(data / "feature_schema_v1.json").hosts == tuple(sorted((name, "b")))
    assert set(_labels(data)) == {1, -1}


def test_the_same_input_gives_the_same_bytes_in_whatever_pieces_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_path, schema_path = simulate(tmp_path, hosts=2, episodes=2, rows=300, seed=1)
    made = []
    for name, batch_rows in (("a", raw_file.BATCH_ROWS), ("b", 37)):
        monkeypatch.setattr(raw_file, "BATCH_ROWS", batch_rows)
        out = tmp_path / name
        program.prepare(raw_path, schema_path, out, window=60, stride=10, log=lambda _: None)
        made.append(files_of(out))
    assert made[0] == made[1]


def test_whole_numbers_that_a_csv_writes_with_a_point_are_the_same_classes(raw: Any) -> None:
    """A column with gaps often comes as 0.0 and 1.0; it is a binary task all the same."""
    rows = raw.episode("a", "1", [0.0] * 10 + [1.0] * 10)
    data = raw.prepare(raw.write(rows, ".csv"))
    assert load_schema(data / "feature_schema_v1.json").classes == ("normal", "anomaly")
    assert _labels(data) == [0, 1, 1]


@given(
    pieces=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    window=st.integers(2, 8),
    stride=st.integers(1, 11),
)
def test_windows_do_not_depend_on_how_rows_arrive(
    pieces: list[int], window: int, stride: int
) -> None:
    total = sum(pieces)
    values = np.arange(total, dtype=np.float32)[:, None]
    entry = EpisodeEntry(host="a", episode="1", offset=0, length=total, start=0)
    ends = np.cumsum(pieces)
    stream = [
        Rows(entry, values[end - n : end], np.zeros(n, dtype=np.int16))
        for n, end in zip(pieces, ends)
    ]
    blocks = list(cut_windows(stream, window, stride, Labelling("binary", ("0", "1"))))
    starts = np.concatenate([block.starts for block in blocks])
    assert starts.tolist() == list(range(0, total - window + 1, stride))
    for block in blocks:
        for start, view in zip(block.starts, block.windows):
            assert view[0].tolist() == list(range(start, start + window))


def test_summary_features_mean_what_they_say() -> None:
    line = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 8]], dtype=np.float32)
    step = np.array([[5, 5, 5, 5, 5, 5, 5, 5, 1]], dtype=np.float32)
    found = summarise(np.stack([line, step]))
    of_line, of_step = (dict(zip(STATISTICS, row[0].tolist())) for row in found)
    assert of_line["mean"] == of_line["median"] == 4
    assert (of_line["min"], of_line["q25"], of_line["q75"], of_line["max"]) == (0, 2, 6, 8)
    assert of_line["slope"] == pytest.approx(1)
    assert of_line["std"] == pytest.approx(np.std(line), rel=1e-6)
    assert (of_step["mean_abs_change"], of_step["max_abs_change"]) == (0.5, 4)
    assert summarise(np.stack([line]))[0].tolist() == found[0].tolist()


def _drop(column: str) -> Callable[[list[Any]], None]:
    def spoil(rows: list[Any]) -> None:
        for row in rows:
            del row[column]

    return spoil


def _put(at: int, column: str, value: Any) -> Callable[[list[Any]], None]:
    def spoil(rows: list[Any]) -> None:
        rows[at][column] = value

    return spoil


def _add_column(rows: list[Any]) -> None:
    for row in rows:
        row["extra"] = 1.0


def _swap(rows: list[Any]) -> None:
    rows[3], rows[30] = rows[30], rows[3]


FAULTS = [
    (_drop("seen"), "raw.parquet: seen: column is missing"),
    (_drop("label"), "raw.parquet: label: column is missing"),
    (_add_column, "raw.parquet: extra: column is in no schema"),
    (_put(7, "seen", float("nan")), "seen: value at host a, episode a/1, t 7 is missing"),
    (_put(7, "seen", 1e300), "t 7 is missing, not finite or beyond the range of float32"),
    (_put(7, "hidden", None), "hidden: value at host a, episode a/1, t 7 is missing"),
    (_put(7, "t", 6), "t: host a, episode a/1 goes from t 6 to 6; sort by t, keep one row"),
    (_put(29, "t", 99), "goes from t 28 to 99"),
    (_swap, "host a, episode a/1 lie apart; sort by host, episode, t"),
    (_put(7, "host", None), "host: a value is missing"),
    (_put(7, "label", None), "label: a label is missing; give unlabelled rows the label -1"),
]


@pytest.mark.parametrize(("spoil", "message"), FAULTS)
def test_a_spoilt_file_is_refused_with_place_and_remedy(
    raw: Any, spoil: Callable[[list[Any]], None], message: str
) -> None:
    rows = raw.episode("a", "a/1", [0] * 30) + raw.episode("b", "b/1", [0] * 30)
    spoil(rows)
    with pytest.raises(BadInputError) as refused:
        raw.prepare(raw.write(rows))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_series_under_two_names_is_refused(raw: Any) -> None:
    """It would be trained and tested on; its labels do not matter, nor where batches end."""
    rows = raw.episode("a", "a/1", [0] * 70) + raw.episode("b", "b/1", [0] * 70)
    copies = [row | {"host": "c", "episode": "c/9", "label": 1} for row in rows[:70]]
    with pytest.raises(BadInputError) as refused:
        raw.prepare(raw.write(rows + copies))
    assert str(refused.value) == (
        "raw.parquet: episode: host c, episode c/9 is the same series as host a, episode a/1; "
        "drop one of them, or correct what wrote the file"
    )
    copies[35]["hidden"] += 1
    raw.prepare(raw.write(rows + copies))


@pytest.mark.parametrize(
    ("rule", "share", "expected"),
    [
        (None, None, [1, 1, 0, 1, -1]),
        ("any", None, [1, 1, 0, 1, -1]),
        ("last", None, [1, 0, 0, 1, -1]),
        ("share", 0.5, [1, 0, 0, 0, -1]),
        ("share", 0.1, [1, 1, 0, 1, -1]),
        ("share", 1.0, [0, 0, 0, 0, -1]),
    ],
)
def test_a_window_is_labelled_by_the_rule(
    raw: Any, rule: Any, share: float | None, expected: list[int]
) -> None:
    labels = [0] * 5 + [1] * 5 + [1] * 4 + [0] * 6 + [0] * 10 + [0] * 9 + [1] + [0] * 9 + [-1]
    path = raw.write(raw.episode("a", "1", labels))
    data = raw.prepare(path, window=10, stride=10, label_rule=rule, label_share=share)
    assert _labels(data) == expected
    schema = load_schema(data / "feature_schema_v1.json")
    assert (schema.label_rule, schema.label_share) == (rule or "any", share)
    counts = {"normal": expected.count(0), "anomaly": expected.count(1)}
    assert (schema.class_counts, schema.unlabelled_windows) == (counts, 1)


@pytest.mark.parametrize(
    ("labels", "rule", "share", "key"),
    [
        ("01", "majority", None, "--label-rule"),
        ("012", "any", None, "--label-rule"),
        ("01", "share", None, "--label-share"),
        ("01", "last", 0.5, "--label-share"),
    ],
)
def test_a_rule_that_does_not_suit_the_labels_is_refused(
    raw: Any, labels: str, rule: Any, share: float | None, key: str
) -> None:
    """Any row of several classes would be of all of them."""
    path = raw.write(raw.episode("a", "1", [int(labels[at % len(labels)]) for at in range(40)]))
    with pytest.raises(BadInputError, match=f"command line: {key}: "):
        raw.prepare(path, label_rule=rule, label_share=share)


def test_a_wrong_schema_is_refused_by_key(raw: Any) -> None:
    raw.schema["channels"]["hidden"]["modes"] = ["oracel"]
    with pytest.raises(BadInputError, match=r"raw\.schema\.json: channels\.hidden\.modes\.0"):
        raw.prepare(raw.write(raw.episode("a", "1", [0] * 20)))


def test_a_misspelt_key_of_a_schema_is_refused_and_a_note_is_not(raw: Any) -> None:
    """Else it would make another task of the same data."""
    rows = raw.episode("a", "1", [0] * 20)
    raw.schema["labels"] = "0 is normal"
    raw.prepare(raw.write(rows))
    raw.schema["unlabeled"] = raw.schema.pop("unlabelled")
    with pytest.raises(BadInputError) as refused:
        raw.prepare(raw.write(rows))
    fault = "raw.schema.json: file: unknown key 'unlabeled'; did you mean 'unlabelled'?"
    assert str(refused.value).startswith(fault)


def test_a_column_that_is_there_twice_is_refused(raw: Any) -> None:
    path = raw.write(raw.episode("a", "1", [0] * 20), ".csv")
    path.write_text("".join(f"{line},{line.split(',')[3]}\n" for line in path.read_text().split()))
    with pytest.raises(BadInputError, match=r"raw\.csv: seen: column is there twice"):
        raw.prepare(path)


def test_a_refused_file_leaves_no_schema_behind(raw: Any) -> None:
    rows = raw.episode("a", "1", [0] * 20)
    data = raw.prepare(raw.write(rows))
    rows[15]["seen"] = float("inf")
    with pytest.raises(BadInputError):
        raw.prepare(raw.write(rows))
    assert not (data / "feature_schema_v1.json").exists()


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_memory_does_not_grow_with_the_file(raw: Any) -> None:
    code = (
        "import sys\n"
        "from agent.trainer import prepare\n"
        "assert prepare.main(sys.argv[1:]) == 0\n"
        "status = dict(line.split(':') for line in open('/proc/self/status'))\n"
        "print(status['VmHWM'].split()[0], file=sys.stderr)\n"
    )
    path = raw.folder / "raw.parquet"
    path.with_suffix(".schema.json").write_text(json.dumps(raw.schema))
    peaks_mib = []
    for rows in (300_000, 3_000_000):
        values = np.random.default_rng(0).random(rows, dtype=np.float32)
        columns = {"host": ["a"] * rows, "episode": ["a/1"] * rows, "t": np.arange(rows)}
        columns |= {"seen": values, "hidden": values, "label": np.zeros(rows, dtype=np.int8)}
        pq.write_table(pa.table(columns), path, row_group_size=rows)
        argv = ["--raw", str(path), "--out-dir", str(raw.out)]
        done = subprocess.run(
            [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True
        )
        peaks_mib.append(int(done.stderr.split()[-1]) / 1024)
    assert peaks_mib[1] < peaks_mib[0] + 40
