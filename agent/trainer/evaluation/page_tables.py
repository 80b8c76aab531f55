"""The page's tables of thresholds, events, classes and channels."""

from __future__ import annotations

from collections.abc import Iterator

from agent.trainer.evaluation.findings_schema import Events, HostThresholds, Importance
from agent.trainer.evaluation.host_tables import HostTable as Table
from agent.trainer.evaluation.host_tables import rate
from agent.trainer.evaluation.report_schema import Report

MOST_CHANNELS = 30
_RULES = {
    "called": "decision threshold",
    "alarm": "alarm threshold of all hosts",
    "host_alarm": "each host's own alarm threshold",
}


def figures(report: Report) -> Iterator[Table]:
    """Yield the tables for what the report has."""
    if report.operating_points:
        yield _operating_points(report)
    if report.host_thresholds is not None:
        yield _host_thresholds(report.host_thresholds)
    if report.events:
        yield _events(report)
    if len(report.confusion) > 2:
        yield _classes(report)
    if report.importance is not None:
        yield _channels(report.importance)
        if report.importance.gain:
            yield _gain(report.importance.gain)


def _operating_points(report: Report) -> Table:
    return Table(
        "Thresholds",
        "Chosen on validation for each target; what they do on the test part.",
        ("target rate", "threshold", "false-positive rate", "recall", "precision"),
        [
            (
                f"{one.target_fpr:g}",
                "of each fold" if one.threshold is None else f"{one.threshold:.4g}",
                rate(one.fpr),
                rate(one.recall),
                rate(one.precision),
            )
            for one in report.operating_points
        ],
    )


def _host_thresholds(found: HostThresholds) -> Table:
    told = {"all hosts": found.overall, **found.per_host}
    needed = f"{found.procedure.needed} windows" if found.procedure else "the host's first windows"
    return Table(
        "Alarms by each host's own threshold",
        f"A host's own threshold follows from its past scores, without labels. It holds after "
        f"{needed}; both thresholds are judged on those that follow.",
        ("host", "windows", "false-positive rate", "pooled", "recall", "pooled"),
        [
            (
                host,
                f"{one.windows:,}",
                rate(one.fpr),
                rate(one.fpr_pooled),
                rate(one.tpr),
                rate(one.tpr_pooled),
            )
            for host, one in told.items()
        ],
    )


def _events(report: Report) -> Table:
    return Table(
        "Events",
        "An event is a run of positive windows; it is noticed if one of them raises the alarm. By "
        "chance: the same alarms at shifted times. The delay counts from the event's first window.",
        (
            "rule",
            "events",
            "noticed",
            "share",
            "by chance",
            "delay, median",
            "90 % within",
            "false alarms a host and day",
        ),
        [(_RULES[name], *_event_cells(one)) for name, one in report.events.items()],
    )


def _event_cells(found: Events) -> tuple[str, ...]:
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
    return Table("Classes", "On the test part.", head, rows)


def _ratio(part: int, whole: int) -> str:
    return rate(part / whole if whole else None)


def _channels(found: Importance) -> Table:
    rows = [(name, f"{fall:.3f}") for name, fall in found.permutation.items()]
    return Table(
        "Channels",
        f"Fall of the AUROC when a channel is exchanged between {found.windows:,} test windows.",
        ("channel", "fall of the AUROC"),
        rows[:MOST_CHANNELS],
    )


def _gain(gain: dict[str, float]) -> Table:
    rows = [(name, f"{share:.3f}") for name, share in gain.items()]
    note = "Share of what all splits of the trees gain."
    return Table("Features", note, ("feature", "share of the gain"), rows[:MOST_CHANNELS])
