"""Results in words: the first metric, marks, what a requeue sets aside and for how long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker.figures import is_figure, rounded
from broker.protocol.loglines import MAX_LINE_CHARS, MAX_METRICS
from broker.wrapping import printable

_ABBREVIATIONS: Final = {"auroc": "AUROC", "f1": "F1", "macro_f1": "macro F1", "r2": "R²"}
_MOST_CHARS: Final = 40  # of a metric's name
CHANCE: Final = 0.5  # the AUROC of a guess
_MARKS: Final = {
    "below_chance": "below chance",
    "below_floor": "below its floor",
    "metrics_unread": "without its metrics",
    "metrics_left_out": "without some metrics",
}
_RULES: Final = {
    "metrics_unread": ": they are to be a JSON object, in a plain file metrics.json of at most "
    f"{MAX_LINE_CHARS} characters",
    "metrics_left_out": f": {MAX_METRICS} are kept at most",
}
_MOST_MARKS: Final = 16
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


def main_metric(metrics: Mapping[str, Any] | None) -> str | None:
    """Return the name of the metric that the trainer said first; none where there is none."""
    return next((name for name, value in (metrics or {}).items() if is_figure(value)), None)


def metric_name(name: str) -> str:
    """Return a metric's own name, as people are shown it."""
    return _ABBREVIATIONS.get(name, printable(name)[:_MOST_CHARS])


def marks_of(metrics: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the codes of what is wrong with a result: its trainer's `marks`, and below chance."""
    said = (metrics or {}).get("marks")
    told = [one for one in said if isinstance(one, str)] if isinstance(said, list) else []
    found = [one for one in told if _CODE.fullmatch(one)][:_MOST_MARKS]
    if metrics and _is_below_chance(metrics):
        found.insert(0, "below_chance")
    return tuple(dict.fromkeys(found))


def _is_below_chance(metrics: Mapping[str, Any]) -> bool:
    """Whether a result tells less than a guess: the interval of its AUROC lies below 0.5."""
    interval = metrics.get("auroc_ci")
    if not isinstance(interval, list | tuple) or len(interval) != 2:
        return False
    return all(map(is_figure, interval)) and max(interval) < CHANCE


def short_marks(marks: Iterable[str]) -> str:
    """Return marks in a few words each; empty where there is none."""
    return ", ".join(_MARKS.get(code, code.replace("_", " ")) for code in marks)


def mark_words(marks: Iterable[str], metrics: Mapping[str, Any] | None) -> str:
    """Return in words what marks mean, with the figures; empty where there is none."""
    known = metrics or {}
    found = []
    for code in marks:
        said, interval, floor = short_marks([code]), known.get("auroc_ci"), known.get("floor_auroc")
        if code == "below_chance" and _is_below_chance(known):
            between = " to ".join(map(rounded, interval or ()))
            said += f": the 95 % interval of its AUROC, {between}, is below {CHANCE}"
        if code == "below_floor" and is_figure(known.get("auroc")) and is_figure(floor):
            floors = f"the better of two plain models has {rounded(floor)}"
            said += f": its AUROC is {rounded(known['auroc'])}, {floors}"
        found.append(said + _RULES.get(code, ""))
    return "; ".join(found)


def begins_again(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say of each job without checkpoints what it loses; `jobs` are rows of `workers`."""
    return [
        f"{job['name']} runs{at_share(job['progress'])} and keeps no checkpoint: given back, it "
        "begins again"
        for job in jobs
        if job["phase"] == "running" and not job["resumable"]
    ]


def at_share(share: float | None) -> str:
    """Return how much was done, to be said in a sentence; empty where that is unknown."""
    return "" if share is None else f" at {share * 100:.0f} %"


def metric_rows(metrics: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return of each metric its name, its value, and its 95 % interval, in words."""
    found = []
    for name, value in (metrics or {}).items():
        interval = interval_of((metrics or {}).get(f"{name}_ci"))
        if is_figure(value) and not name.endswith("_ci"):
            found.append((printable(name), rounded(value), interval))
        elif value is None:
            found.append((printable(name), "missing: no finite number", ""))
    return found


def interval_of(interval: Any) -> str:
    """Return `0.87 to 0.97` for a pair of numbers, nothing for anything else."""
    if isinstance(interval, list | tuple) and len(interval) == 2 and all(map(is_figure, interval)):
        return f"{rounded(interval[0])} to {rounded(interval[1])}"
    return ""


def metric_words(metrics: Mapping[str, Any] | None) -> str:
    """Return a result's first metric, `AUROC 0.945`; empty where there is none."""
    name = main_metric(metrics)
    return "" if name is None else f"{metric_name(name)} {rounded((metrics or {})[name])}"


def command(job: str, attempt: int) -> str:
    """Return the command that fetches what an attempt has brought."""
    return f"`fleet get {job} --attempt {attempt}`"


def kept_words(keep_s: float) -> str:
    """Return for how long a result that is set aside is kept: `for 30 days`."""
    days = keep_s / 86_400
    if days < 2:
        return f"for {keep_s / 3600:.4g} hours"
    return f"for {days:.4g} days"


def share_of(row: Mapping[str, Any]) -> float | None:
    """Return how much of its training a held job has done, by its row in `show` or `list`."""
    is_at_work = (row.get("held") or {}).get("phase", "running") == "running"
    return row.get("share") if is_at_work else None
