"""The page's words and tables of hosts, folds, floors and marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.trainer.evaluation.report_schema import LabelRule, Mark, Report

FLOORS: Final = {
    "threshold": "Floor: a threshold on the best single feature",
    "logistic": "Floor: a logistic regression on the summary features",
}
_OF_BINARY: Final = ("auroc", "average_precision", "f1", "fpr_realised")
_OF_SEVERAL: Final = ("auroc", "accuracy", "balanced_accuracy", "macro_f1")
_RULES: Final = {
    "any": "that of any anomalous row",
    "last": "that of its last row",
    "majority": "that of most of its rows",
}


@dataclass(frozen=True)
class HostTable:
    """A table with its title, a note above it, and the names of its columns."""

    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def mark_in_words(mark: Mark) -> str:
    """Return what a mark says."""
    if mark.code == "below_chance":
        return f"Below chance: the AUROC is {mark.value:.3f}, its interval below {mark.limit:g}."
    if mark.code == "brier_above_base_rate":
        figures = f"the Brier score is {mark.value:.3f}, above {mark.limit:.3f}"
        return f"The probabilities are worse than the shares of the classes: {figures}."
    floor = f"that of the better floor {mark.limit:.3f}"
    return f"Below its floor: the AUROC is {mark.value:.3f}, {floor}."


def rule_in_words(rule: LabelRule) -> str:
    """Return how a window's label follows from those of its rows."""
    if rule.rule == "share":
        return f"anomalous if {rule.share:g} of its rows are"
    return _RULES[rule.rule]


def scope_in_words(report: Report) -> str:
    """Return what the intervals are of."""
    told = report.bootstrap
    if told.these_hosts_only:
        return f"On these hosts only: {told.hosts} are too few to speak for others."
    return f"Resampled were the {told.hosts} hosts, and within each of them every {told.group}."


def host_tables(report: Report, labels: dict[str, str]) -> Iterator[HostTable]:
    """Yield the table of hosts, and of folds; `labels` says what metrics are called."""
    shown = _OF_BINARY if len(report.classes) == 2 else _OF_SEVERAL
    heads = [labels[name] for name in shown]
    rows = [
        (host, f"{one.windows:,}", *map(str, one.counts), *_cells(one.metrics, shown))
        for host, one in report.per_host.items()
    ]
    if len(report.per_host) > 1:
        for name, part in (("mean", "mean"), ("deviation between hosts", "deviation")):
            over = {key: getattr(found, part) for key, found in report.over_hosts.items()}
            rows.append((name, "", *("" for _ in report.classes), *_cells(over, shown)))
    note = "Of the test part. A mean is over the hosts that define the metric."
    yield HostTable("Test hosts", note, ("host", "windows", *report.classes, *heads), rows)
    if report.folds:
        of_folds = [
            (str(one.fold), ", ".join(one.hosts.test), *_cells(one.metrics, shown))
            for one in report.folds
        ]
        note = "Each tests hosts that its model was not trained on. Ranking metrics are means over "
        note += "folds, each counted as often as it has hosts."
        yield HostTable("Folds", note, ("fold", "hosts tested", *heads), of_folds)


def _cells(metrics: dict[str, Any], names: Sequence[str]) -> list[str]:
    return [rate(metrics.get(name)) for name in names]


def rate(value: float | None) -> str:
    """Return a figure of a table."""
    return "none" if value is None else f"{value:.3f}"
