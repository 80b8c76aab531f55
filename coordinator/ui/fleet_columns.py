"""The columns of jobs, hosts and programs, for the verbs, `fleet top` and the page.

One table of each: what a column is called, what it says of a row (`coordinator.client.rows`), and
which goes first where there is little room. A face only draws. Terminals take a column's `cell`;
the page's script (static/tables.js) has a cell of its own for each `Kind`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from broker.figures import size, span
from broker.wrapping import printable
from coordinator.client.rows import HELD, Row, took_s
from coordinator.jobs.job_progress import left_words
from coordinator.ui.fitted_table import Column
from coordinator.ui.words import NO_HOST, ago, short

Kind = Literal[
    "text", "job", "state", "place", "share", "left", "metric", "score", "loss", "curve", "took",
    "ago", "id", "host", "condition", "doing", "held", "percent", "load", "memory", "power",
    "program", "dataset", "size",
]  # fmt: skip
Face = Literal["list", "top", "page"]
Cell = tuple[str, str]  # text, and what it means: one of GOOD to DIM, or nothing

GOOD: Final = "good"
BUSY: Final = "busy"
WARN: Final = "warn"
BAD: Final = "bad"
DIM: Final = "dim"
PLAIN: Final = ""
NOTHING: Final[Cell] = ("-", DIM)
TONES: Final[Mapping[str, str]] = {
    "pending": WARN, "claimed": BUSY, "running": BUSY, "completed": GOOD, "failed": BAD,
    "cancelled": DIM,
}  # fmt: skip
EVERYWHERE: Final[tuple[Face, ...]] = ("list", "top", "page")
TERMINALS: Final[tuple[Face, ...]] = ("list", "top")
GIB: Final = 2**30
LEAST_BAR: Final = 3
_LEVELS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class FleetColumn(Column):
    """One column of jobs or hosts. `key` is the field of the row that it is sorted by.

    Where a table stays as it is while its rows change, a column begins with `width` characters and
    grows to `most`. `live`: it tells of what is at work alone. `faces` are those that have it.
    """

    key: str = ""
    kind: Kind = "text"
    width: int = 0
    most: int = 0
    live: bool = False
    faces: tuple[Face, ...] = EVERYWHERE

    def cell(self, row: Row, width: int = 0) -> Cell:
        """Return what it says of a row; where there is `width` for it, with a bar."""
        return _CELLS[self.kind](row, self.key, width)


def left(row: Row) -> str:
    """Return for how much longer a job trains, in a word or two."""
    if row["away"]:
        return "?"  # what its trainer said last is of no use
    return left_words(left_s(row))


def left_s(row: Row) -> float | None:
    """Return for how many seconds a job trains on; none: unknown."""
    return None if row["ends"] is None else row["ends"] / 1000 - time.time()


def took(row: Row) -> str:
    """Return how long a job's newest attempt has run; nothing before it has started."""
    seconds = took_s(row, time.time())
    return "" if seconds is None else span(seconds)


def loss(value: float | None) -> str:
    """Return a loss in six characters; cut to them, one with more digits would be another."""
    if value is None:
        return ""
    text = f"{value:.4f}"
    return text[:6].rstrip(".") if text.index(".") <= 6 else f"{value:.0e}"


def bar(share: float, width: int) -> str:
    """Return a bar that is filled by a share between 0 and 1."""
    filled = round(width * min(1.0, max(0.0, share)))
    return "━" * filled + "╌" * (width - filled)


def spark(values: Sequence[float], width: int) -> str:
    """Return a curve of at most `width` characters, from its lowest to its highest value."""
    if not values or width < 1:
        return ""
    if len(values) > width:
        step = (len(values) - 1) / max(1, width - 1)
        values = [values[round(index * step)] for index in range(width)]
    values = [value / 2 for value in values]  # how far apart two are may be beyond a float
    low, high = min(values), max(values)
    scale = (len(_LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(_LEVELS[round((value - low) * scale)] for value in values)


def _text(row: Row, key: str, _width: int) -> Cell:
    return ("" if row[key] is None else str(row[key])), PLAIN


def _state(row: Row, _key: str, _width: int) -> Cell:
    """Return a job's state, marked where the manifest does not have the job any more."""
    style = WARN if row["mark"] else TONES[row["state"]]
    return (row["state"] if row["planned"] else f"{row['state']}*"), style


def _place(row: Row, _key: str, _width: int) -> Cell:
    """Return which host has a job; that none could have it, or can yet, stands out."""
    if row["unplaceable"]:
        return NO_HOST, BAD
    return (row["awaits"], WARN) if row["awaits"] else (row["host"], PLAIN)


def _share(row: Row, _key: str, width: int) -> Cell:
    """Return how much is done of what a host holds, or what it is at instead."""
    share, phase = row["share"], row["phase"]
    if row["state"] not in HELD:
        return "", PLAIN
    percent = "" if share is None else f"{share:.0%}"
    if phase not in {"", "train"}:
        return f"{phase} {percent}".rstrip(), BUSY
    if share is None:
        return phase or ("starting" if row["state"] == "running" else ""), DIM
    epoch = row["epoch"]
    figure = epoch if "/" in epoch and width - len(epoch) > LEAST_BAR else percent
    room = width - len(figure) - 1
    return (f"{bar(share, room)} {figure}" if room >= LEAST_BAR else percent), BUSY


def _metric(row: Row, _key: str, _width: int) -> Cell:
    """Return the first metric of a result, with its name."""
    return f"{row['metric']} {row['score']}".strip(), BAD if row["mark"] else PLAIN


def _score(row: Row, key: str, _width: int) -> Cell:
    return ("" if row[key] is None else f"{row[key]:.3f}"), PLAIN


def _ago(row: Row, key: str, _width: int) -> Cell:
    ms = row[key]
    at = None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat()
    return ago(at), PLAIN


def _doing(row: Row, _key: str, _width: int) -> Cell:
    """Return what a host is at, why it is given nothing, or when it was last heard of."""
    if row["doing"]:
        return row["doing"], PLAIN
    if row["barred"]:
        return printable(row["barred"]), WARN
    if row["online"]:
        return "ending" if row["ending"] else "idle", DIM
    return ("never seen" if row["seen"] is None else f"last seen {_ago(row, 'seen', 0)[0]}"), DIM


def _percent(row: Row, key: str, width: int) -> Cell:
    """Return a percentage, with a bar before it where there is room for one."""
    percent = row[key]
    if percent is None:
        return NOTHING
    figure = f"{min(percent, 999):3.0f}%"
    style = BUSY if percent >= 50 else PLAIN
    return (f"{bar(percent / 100, width - 5)} {figure}" if width >= 9 else figure), style


def _memory(row: Row, key: str, _width: int) -> Cell:
    """Return how much memory is taken, of how much, in GiB: `9.6/32G`."""
    used, total = row[f"{key}_used"], row[f"{key}_total"]
    if not total or used is None:
        return NOTHING
    text = f"{used / GIB:.{1 if used < 10 * GIB else 0}f}/{total / GIB:.0f}G"
    return text, WARN if used > 0.9 * total else PLAIN


def _figure(form: str) -> Callable[[Row, str, int], Cell]:
    return lambda row, key, _: NOTHING if row[key] is None else (form.format(row[key]), PLAIN)


_CELLS: Final[Mapping[Kind, Callable[[Row, str, int], Cell]]] = {
    "text": _text,
    "job": _text,
    "host": _text,
    "state": _state,
    "place": _place,
    "share": _share,
    "left": lambda row, _key, _width: (left(row), PLAIN),
    "metric": _metric,
    "score": _score,
    "loss": lambda row, key, _: (loss(row[key]), PLAIN),
    "curve": lambda row, _key, width: (spark(row.get("losses", ()), width), BUSY),
    "took": lambda row, _key, _width: (took(row), PLAIN),
    "ago": _ago,
    "id": lambda row, key, _: (short(row[key]), DIM),
    "condition": lambda row, key, _: (row[key], row["tone"]),
    "doing": _doing,
    "percent": _percent,
    "load": _figure("{:.1f}"),
    "memory": _memory,
    "power": _figure("{:.0f}W"),
    "program": _text,
    "dataset": _text,
    "size": lambda row, key, _: (size(row[key]), PLAIN),
}


def _column(
    key: str, title: str, kind: Kind, rank: int, width: int, *, most: int = 0,
    least: int | None = None, right: bool = False, live: bool = False,
    faces: tuple[Face, ...] = EVERYWHERE,
) -> FleetColumn:  # fmt: skip
    """Return a column; what grows may be cut as well."""
    least = (width if most else None) if least is None else least
    return FleetColumn(
        title, rank, least, right, key=key, kind=kind, width=max(width, len(title)), most=most,
        live=live, faces=faces,
    )  # fmt: skip


JOBS: Final = (
    _column("name", "Job", "job", 0, 19, most=40, least=32),
    _column("state", "State", "state", 0, 10),
    _column("host", "Host", "place", 2, 11, most=24),
    _column("share", "Done", "share", 1, 12, most=34, live=True),
    _column("ends", "Left", "left", 3, 6, right=True, live=True),
    _column("loss", "Loss", "loss", 6, 6, right=True, live=True),
    _column("epoch", "Epoch", "text", 7, 12, live=True, faces=("page",)),
    _column("losses", "Curve", "curve", 7, 7, most=40, live=True, faces=("top",)),
    _column("value", "Metric", "metric", 4, 14, most=24, least=24, right=True),
    _column("took", "Took", "took", 5, 6, right=True),
    _column("attempt", "Try", "text", 9, 3, right=True),
    _column("model", "Model", "text", 10, 8, most=16),
    _column("started", "Began", "ago", 11, 10, right=True),
    _column("mode", "Mode", "text", 12, 9),
    _column("priority", "Prio", "text", 13, 6, right=True),
    _column("finished", "Ended", "ago", 15, 10, right=True),
    _column("interval", "95 % CI", "text", 8, 14, faces=("list", "page")),
    _column("ap", "AP", "score", 16, 5, right=True),
    _column("f1", "F1", "score", 17, 5, right=True),
    _column("artifact", "Artifact", "id", 18, 12, faces=TERMINALS),
    _column("id", "Id", "id", 14, 12, least=8, faces=TERMINALS),
)
HOSTS: Final = (
    _column("id", "Host", "host", 0, 13, most=24, least=12),
    _column("state", "Status", "condition", 0, 10),
    _column("doing", "Job", "doing", 0, 24, most=80, least=32),
    _column("share", "Done", "held", 5, 10, faces=("page",)),
    _column("cpu", "CPU", "percent", 1, 4, most=15, right=True),
    _column("ram", "RAM", "memory", 3, 9, right=True),
    _column("gpu", "GPU", "percent", 2, 4, most=15, right=True),
    _column("vram", "VRAM", "memory", 4, 8, right=True),
    _column("power", "Power", "power", 7, 5, right=True),
    _column("device", "Device", "text", 6, 16, most=24, least=8),
    _column("seen", "Heard", "ago", 8, 10, right=True),
    _column("load", "Load", "load", 9, 5, right=True),
    _column("cores", "Cores", "text", 10, 6, right=True),
    _column("version", "Version", "text", 11, 8),
    _column("description", "Description", "text", 12, 20, most=40),
)


def _pushed(title: str, kind: Kind, hosts: str, own: FleetColumn) -> tuple[FleetColumn, ...]:
    """Return the columns of what people push: `hosts` says what those do; `own` it alone has."""
    return (
        _column("title", title, kind, 0, 20, most=40),
        _column("jobs", "Jobs", "text", 1, 4, right=True),
        _column("pushed", "Pushed", "ago", 2, 10, right=True),
        _column("hosts", hosts, "text", 3, 14, most=32),
        own,
        _column("size", "Size", "size", 5, 10, right=True),
        _column("by", "Pushed by", "text", 6, 14, most=16),
    )


PROGRAMS: Final = _pushed(
    "Program", "program", "Allowed by", _column("signers", "Signed by", "text", 4, 10, most=16)
)
DATASETS: Final = _pushed(
    "Dataset", "dataset", "Held by", _column("files", "Files", "text", 4, 7, right=True)
)


def shown(columns: Sequence[FleetColumn], face: Face, *without: str) -> list[FleetColumn]:
    """Return the columns that a face has, but for those of these keys."""
    return [one for one in columns if face in one.faces and one.key not in without]
