"""The words and tables of a report's page and of a model's card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.trainer.evaluation.plots import interval_in_words
from agent.trainer.evaluation.report_schema import (
    Events,
    HostThresholds,
    Importance,
    LabelRule,
    Mark,
    Metrics,
    Report,
)

LABELS: Final = {
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "average_precision": "average precision",
    "balanced_accuracy": "balanced accuracy",
    "brier": "Brier score",
    "calibration_error": "expected calibration error",
    "f1": "F1",
    "floor_auroc": "AUROC of the better floor",
    "fpr_realised": "false-positive rate that came true",
    "macro_f1": "macro F1",
    "probe_auroc": "AUROC of the linear probe",
    "probe_average_precision": "average precision of the linear probe",
    "probe_f1": "F1 of the linear probe",
    "tpr_at_fpr": "true-positive rate at the alarm",
}
MOST_CHANNELS: Final = 30
FLOORS: Final = {
    "threshold": "Floor: a threshold on the best single feature",
    "logistic": "Floor: a logistic regression on the summary features",
}
_OF_BINARY: Final = ("auroc", "average_precision", "f1", "fpr_realised")
_OF_SEVERAL: Final = ("auroc", "accuracy", "balanced_accuracy", "macro_f1")
_LABEL_RULES: Final = {
    "any": "that of any anomalous row",
    "last": "that of its last row",
    "majority": "that of most of its rows",
}
_ALARM_RULES: Final = {
    "called": "decision threshold",
    "alarm": "alarm threshold of all hosts",
    "host_alarm": "each host's own alarm threshold",
}
_OF_EVENTS: Final = (
    "rule", "events", "noticed", "share", "by chance", "delay, median", "90 % within",
    "false alarms a host and day",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
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
    return _LABEL_RULES[rule.rule]


def tested_in_words(report: Report) -> str:
    """Return which model the figures are of, what it had seen, and what stands for labels."""
    text = "On the test part, which the model has never seen."
    if report.folds:
        text = "The figures are of the folds' models, each tested on hosts that it has never seen."
        if report.training is not None:
            text += " The stored model was made with all these hosts, and was not tested."
    if report.task == "unlabelled":
        text += " No window has a label and each counts as normal, so that the false-positive rate "
        text += "is the rate of alarms."
    return text


def scope_in_words(report: Report) -> str:
    """Return what the intervals are of."""
    told = report.bootstrap
    if told.these_hosts_only:
        return f"On these hosts only: {told.hosts} are too few to speak for others."
    return f"Resampled were the {told.hosts} hosts, and within each of them every {told.group}."


def rate(value: float | None) -> str:
    """Return a figure of a table."""
    return "none" if value is None else f"{value:.3f}"


def metric_rows(metrics: Metrics, undefined: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (name, value, interval or what is wrong) of each metric."""
    rows = []
    for name, value in metrics.items():
        if name.endswith("_ci"):
            continue
        label = LABELS.get(name, name)
        if value is None:
            rows.append((label, "none", undefined.get(name, "not defined")))
            continue
        rows.append((label, f"{value:.3f}", interval_in_words(metrics, name)))
    return rows


def tables(report: Report) -> Iterator[Table]:
    """Yield the tables for what the report has."""
    shown = _OF_BINARY if len(report.classes) == 2 else _OF_SEVERAL
    heads = [LABELS[name] for name in shown]
    yield _hosts(report, shown, heads)
    if report.folds:
        rows = [
            (str(one.fold), ", ".join(one.hosts.test), *_cells(one.metrics, shown))
            for one in report.folds
        ]
        note = "Each tests hosts that its model was not trained on. Ranking metrics are means over "
        note += "folds, each counted as often as it has hosts."
        yield Table("Folds", note, ("fold", "hosts tested", *heads), rows)
    if report.operating_points:
        yield _operating_points(report)
    if report.host_thresholds is not None:
        yield _host_thresholds(report.host_thresholds)
    if report.events:
        note = "An event is a run of positive windows; it is noticed if one of them raises the "
        note += "alarm. By chance: the same alarms at shifted times. The delay counts from the "
        note += "event's first window."
        events = [(_ALARM_RULES[name], *_event(one)) for name, one in report.events.items()]
        yield Table("Events", note, _OF_EVENTS, events)
    if len(report.confusion) > 2:
        yield _classes(report)
    if report.importance is not None:
        yield from _importance(report.importance)


def _hosts(report: Report, shown: Sequence[str], heads: Sequence[str]) -> Table:
    rows = [
        (host, f"{one.windows:,}", *map(str, one.counts), *_cells(one.metrics, shown))
        for host, one in report.per_host.items()
    ]
    if len(report.per_host) > 1:
        for name, part in (("mean", "mean"), ("deviation between hosts", "deviation")):
            over = {key: getattr(found, part) for key, found in report.over_hosts.items()}
            rows.append((name, "", *("" for _ in report.classes), *_cells(over, shown)))
    note = "A mean is over the hosts that define the metric."
    return Table("Test hosts", note, ("host", "windows", *report.classes, *heads), rows)


def _cells(metrics: dict[str, Any], names: Sequence[str]) -> list[str]:
    return [rate(metrics.get(name)) for name in names]


def _operating_points(report: Report) -> Table:
    rows = []
    for one in report.operating_points:
        threshold = "of each fold" if one.threshold is None else f"{one.threshold:.4g}"
        rates = map(rate, (one.fpr, one.recall, one.precision))
        rows.append((f"{one.target_fpr:g}", threshold, *rates))
    note = "Chosen on validation for each target; what they do on tested windows."
    head = ("target rate", "threshold", "false-positive rate", "recall", "precision")
    return Table("Thresholds", note, head, rows)


def _host_thresholds(found: HostThresholds) -> Table:
    rows = []
    for host, one in {"all hosts": found.overall, **found.per_host}.items():
        rates = map(rate, (one.fpr, one.fpr_pooled, one.tpr, one.tpr_pooled))
        rows.append((host, f"{one.windows:,}", *rates))
    needed = f"{found.procedure.needed} windows" if found.procedure else "the host's first windows"
    note = "A host's own threshold follows from its past scores, without labels. It holds after "
    note += f"{needed}; both thresholds are judged on those that follow."
    head = ("host", "windows", "false-positive rate", "pooled", "recall", "pooled")
    return Table("Alarms by each host's own threshold", note, head, rows)


def _event(found: Events) -> tuple[str, ...]:
    delay = found.delay_s
    return (
        f"{found.events}",
        f"{found.noticed}",
        rate(found.recall),
        rate(found.recall_by_chance),
        "none" if delay is None else f"{delay.median:g} s",
        "none" if delay is None else f"{delay.p90:g} s",
        f"{found.false_alarms_per_day:.2f}",
    )


def _classes(report: Report) -> Table:
    rows = []
    for at, (name, row) in enumerate(zip(report.classes, report.confusion)):
        hits, true, called = row[at], sum(row), sum(one[at] for one in report.confusion)
        rows.append((name, f"{true:,}", _ratio(hits, called), _ratio(hits, true)))
    head = ("class", "windows", "precision", "recall")
    return Table("Classes", "Of tested windows.", head, rows)


def _ratio(part: int, whole: int) -> str:
    return rate(part / whole if whole else None)


def _importance(found: Importance) -> Iterator[Table]:
    windows = f"{found.windows:,}"
    note = f"Fall of the AUROC when a channel is exchanged between {windows} test windows."
    rows = [(name, rate(fall)) for name, fall in found.permutation.items()]
    yield Table("Channels", note, ("channel", "fall of the AUROC"), rows[:MOST_CHANNELS])
    if found.gain:
        note = "Share of what all splits of the trees gain."
        rows = [(name, rate(share)) for name, share in found.gain.items()]
        yield Table("Features", note, ("feature", "share of the gain"), rows[:MOST_CHANNELS])
