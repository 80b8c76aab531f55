"""A stream of rows gives what a file of them gives, and outlives bad rows."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.trainer import predict as program
from agent.trainer.common.errors import BadInputError
from agent.trainer.common.progress import Progress
from agent.trainer.inference import stream as stream_module
from agent.trainer.inference.scoring import score
from agent.trainer.inference.stored_model import StoredModel, load_model
from agent.trainer.inference.stream import BadRowError, Stream


@pytest.fixture(scope="module")
def model(trained: Any) -> StoredModel:
    """A trained `mlp`, which the order of a window's rows matters to."""
    return load_model(trained("mlp"), 1)


@pytest.fixture(scope="module")
def table(telemetry: Path) -> Any:
    return pq.read_table(telemetry)


def told(model: StoredModel, lines: Iterable[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the scores of a stream of lines, and what was logged."""
    out, events = io.StringIO(), io.StringIO()
    source = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    program.stream(model, source, out, Progress(events))
    logged = [json.loads(line)["message"] for line in events.getvalue().splitlines()]
    return [json.loads(line) for line in out.getvalue().splitlines()], logged


def by_window(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows by host, episode and start, numbers rounded as in a line."""
    return {
        (row["host"], row["episode"], row["start"]): {
            key: pytest.approx(value, abs=1e-6) if isinstance(value, float) else value
            for key, value in row.items()
        }
        for row in rows
    }


def test_a_stream_of_many_hosts_gives_the_rows_of_the_file(model: StoredModel, table: Any) -> None:
    expected, thresholds = by_window(score(model, table).to_pylist()), model.description.thresholds
    by_host: dict[str, list[str]] = {}
    for row in table.to_pylist():
        by_host.setdefault(row["host"], []).append(json.dumps(row))
    rng, lines = random.Random(0), []
    while by_host:
        host = rng.choice(sorted(by_host))
        lines += by_host[host][:100]
        by_host[host] = by_host[host][100:]
        by_host = {name: rest for name, rest in by_host.items() if rest}
    found, logged = told(model, lines)
    assert logged == []
    streamed = by_window(found)
    # A threshold is the score of a window: for that window rounding decides.
    tied = [
        key
        for key, row in expected.items()
        if row["score"] in (thresholds.decision, thresholds.alarm, row["host_threshold"])
    ]
    assert len(tied) < len(expected) / 100
    for rows in (streamed, expected):
        for key in tied:
            del rows[key]["called"], rows[key]["alarm"], rows[key]["host_alarm"]
    assert streamed == expected
    assert any(row["host_threshold"] != found[0]["host_threshold"] for row in found)


def test_csv_with_a_header_is_a_stream_too(model: StoredModel, table: Any) -> None:
    told_of = model.description
    rows = table.select(told_of.channels)[: told_of.window].to_pylist()
    lines = [",".join(told_of.channels)] + [",".join(map(str, row.values())) for row in rows]
    (found,), _ = told(model, lines)
    (alike,), _ = told(model, map(json.dumps, rows))
    assert (found["host"], found["start"]) == ("host", 0)
    assert found == alike


def test_a_gap_begins_anew(model: StoredModel, table: Any) -> None:
    rows = table[: 2 * model.description.window].to_pylist()
    half = model.description.window // 2
    stream = Stream(model)
    for row in rows[:half]:
        assert stream.push(row) is None
    with pytest.raises(BadRowError, match="came twice"):
        stream.push(rows[half - 1])
    scored = [stream.push(row) for row in rows[half + 1 :]]
    (first,) = (one["start"] for one in scored[: model.description.window] if one)
    assert first == rows[half + 1]["t"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: "),
        ("[1]", "line 2: "),
        ('{"host": "a"}', "is missing or no number"),
        ("{" * 100_000, "line 2: "),
        ('{"host": 1' + "0" * 5000 + "}", "line 2: "),
    ],
)
def test_a_bad_row_is_named_and_left_out(
    line: str, words: str, model: StoredModel, table: Any
) -> None:
    rows = [json.dumps(row) for row in table[: model.description.window].to_pylist()]
    found, (logged,) = told(model, [rows[0], line, *rows[1:]])
    assert len(found) == 1
    assert words in logged


def test_what_is_not_finite_is_left_out(model: StoredModel, table: Any) -> None:
    (row,) = table[:1].to_pylist()
    for wrong in (float("nan"), 1e300, 10**400, None, "x", [1]):
        with pytest.raises(BadRowError, match=model.description.channels[0]):
            Stream(model).push(row | {model.description.channels[0]: wrong})


@pytest.mark.parametrize("name", ["mlp", "gbt"])
def test_after_values_beyond_the_range_of_the_model_a_window_begins_anew(
    name: str, trained: Any, table: Any
) -> None:
    model = load_model(trained(name), 1)
    window, (channel, *_) = model.description.window, model.description.channels
    rows = [row | {"host": "a"} for row in table[: 2 * window + 10].to_pylist()]
    rows[3][channel] = 3e38
    lines = [json.dumps({key: row[key] for key in row if key != "t"}) for row in rows]
    (scored, *_), (logged,) = told(model, lines)
    assert logged.startswith(f"line {window}: ")
    assert scored["start"] == window
    with pytest.raises(BadInputError, match=f"host a, episode {rows[0]['episode']}"):
        score(model, pa.Table.from_pylist(rows))


def test_a_row_of_csv_that_cannot_be_read_is_left_out(model: StoredModel, table: Any) -> None:
    names = model.description.channels
    rows = [",".join(map(str, row.values())) for row in table.select(names)[:2].to_pylist()]
    bad = ["1\r1", "1" * 200_000, "1"]
    _, logged = told(model, [",".join(names), rows[0], *bad, rows[1]])
    assert [line.partition(":")[0] for line in logged] == ["line 3", "line 4", "line 5"]
    for header in (f"{names[0]},{names[0]}", "a\rb", names[0]):
        with pytest.raises(BadInputError, match="standard input: header: "):
            told(model, [header])


@pytest.mark.parametrize("bad", ['{"host": "a"}', "{"])
def test_without_t_a_row_that_cannot_be_read_is_a_gap(
    bad: str, model: StoredModel, table: Any
) -> None:
    """With `t` it is known whose row is lacking."""
    window = model.description.window
    rows = [row | {"host": "a"} for row in table[: 2 * window + 1].to_pylist()]
    lines = [json.dumps({k: v for k, v in row.items() if k != "t"}) for row in rows]
    found, _ = told(model, [*lines[:5], bad, *lines[6:]])
    assert found[0]["start"] == 6
    found, _ = told(model, [*map(json.dumps, rows[:5]), "{", *map(json.dumps, rows[5:])])
    assert found[0]["start"] == rows[0]["t"]


def test_a_step_that_no_number_bears_is_left_out(model: StoredModel, table: Any) -> None:
    (row,) = table[:1].to_pylist()
    with pytest.raises(BadRowError, match="t: is no whole number"):
        Stream(model).push(row | {"t": float("inf")})


def test_hosts_and_lines_are_limited(
    model: StoredModel, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "MAX_HOSTS", 2)
    (row,) = table[:1].to_pylist()
    _, logged = told(model, [json.dumps(row | {"host": name}) for name in "abcb"])
    assert len(logged) == 2  # the third host, and a row of b that came twice
    monkeypatch.setattr(stream_module, "MAX_LINE_BYTES", 100)
    with pytest.raises(BadInputError, match="line: is longer"):
        told(model, ["{" + " " * 200 + "}"])
