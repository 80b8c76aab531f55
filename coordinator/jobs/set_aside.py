"""Words and figures of results: the main metric, chance, and how long they are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker.sentences import is_figure, rounded

MAIN_METRICS: Final = ("auroc", "f1", "macro_f1", "accuracy", "r2", "reconstruction_error")
_ABBREVIATIONS: Final = {"auroc": "AUROC", "f1": "F1", "macro_f1": "macro F1", "r2": "R²"}
CHANCE: Final = 0.5  # the AUROC of a guess
BELOW_CHANCE: Final = "below chance"


def main_metric(metrics: Mapping[str, Any] | None) -> str | None:
    """Return the name of a result's most telling metric; none where there is none."""
    known = metrics or {}
    return next((name for name in MAIN_METRICS if is_figure(known.get(name))), None)


def is_below_chance(metrics: Mapping[str, Any] | None) -> bool:
    """Whether a result tells less than a guess: the interval of its AUROC lies below 0.5."""
    interval = (metrics or {}).get("auroc_ci")
    if not isinstance(interval, list | tuple) or len(interval) != 2:
        return False
    return all(map(is_figure, interval)) and max(interval) < CHANCE


def chance_words(metrics: Mapping[str, Any]) -> str:
    """Return in words what it means that a result is below chance."""
    low, high = metrics["auroc_ci"]
    between = f"{rounded(low)} to {rounded(high)}"
    return f"{BELOW_CHANCE}: the 95 % interval of its AUROC, {between}, is below {CHANCE}"


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


def metric_words(metrics: Mapping[str, Any] | None) -> str:
    """Return a result's most telling metric, `AUROC 0.945`; empty where there is none."""
    name = main_metric(metrics)
    if name is None:
        return ""
    called = _ABBREVIATIONS.get(name, name.replace("_", " "))
    return f"{called} {rounded((metrics or {})[name])}"


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
