"""The drawings of a report's page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from agent.trainer.evaluation.axes import DASHED, DOTTED, FAINT, INK, Axes, around, short
from agent.trainer.evaluation.report_schema import (
    Calibration,
    Curve,
    HostFigures,
    Metrics,
    Report,
    Timeline,
    Training,
)

SERIES: Final = tuple(f"var(--series-{number})" for number in range(8))
_MOST_HOSTS: Final = 40
_UNIT: Final = (-0.02, 1.02)


@dataclass(frozen=True)
class Drawing:
    """A drawing: its name in the page, its title, what it shows in words, and the SVG."""

    name: str
    title: str
    caption: str
    svg: str


def drawings(report: Report) -> tuple[list[Drawing], list[str]]:
    """Return what can be drawn of a report, and why the rest cannot."""
    curves, training = report.curves, report.training
    unit = "round" if report.model == "gbt" else "epoch"
    why = next(iter(report.undefined.values()), "a part lacks a class")
    no_curve = "single folds were put together"
    wanted: dict[str, tuple[Drawing | None, str]] = {
        "ROC": (_roc(curves.roc, report.metrics), why),
        "precision and recall": (_precision_recall(curves.precision_recall, report), why),
        "calibration": (
            _calibration(curves.calibration, report.metrics), "the score is no probability",
        ),
        "learning curve": (_learning_curve(training, unit), no_curve),
        "hosts": (_per_host(report.per_host), why),
    }  # fmt: skip
    missing = [
        f"No drawing of {name}: {reason}."
        for name, (drawing, reason) in wanted.items()
        if drawing is None
    ]
    found = [drawing for drawing, _ in wanted.values() if drawing is not None]
    found += [_timeline(number, one) for number, one in enumerate(curves.timelines)]
    return found, missing


def _learning_curve(training: Training | None, unit: str) -> Drawing | None:
    if training is None:
        return None
    curve, best = training.curve, training.best_epoch
    low, high = around(loss for both in curve for loss in both)
    names = ("training", "validation")
    axes = Axes(
        around((1, len(curve))), (low, high), (unit, "loss"), legend=list(zip(names, SERIES))
    )
    axes.line([(best, low), (best, high)], INK, 1, DOTTED)
    for number in range(len(names)):
        axes.line([(at, both[number]) for at, both in enumerate(curve, 1)], SERIES[number])
    loss = curve[best - 1][1]
    caption = f"Validation loss is lowest, {loss:.4g}, in {unit} {best} of {len(curve)} run."
    return Drawing("learning", "Learning curve", caption, axes.svg("learning"))


def _roc(curves: Sequence[Curve], metrics: Metrics) -> Drawing | None:
    if not curves:
        return None
    axes = _of_classes(curves, ("false-positive rate", "true-positive rate"))
    axes.line([(0, 0), (1, 1)], FAINT, 1, DASHED)
    _draw(axes, curves)
    false, true = metrics.get("fpr_realised"), metrics.get("tpr_at_fpr")
    if isinstance(false, float) and isinstance(true, float):
        axes.dot(false, true, INK, 4)
        axes.note(false, true - 0.06, "alarm")
    return Drawing("roc", "ROC", _in_words("AUROC", metrics, "auroc"), axes.svg("roc"))


def _precision_recall(curves: Sequence[Curve], report: Report) -> Drawing | None:
    if not curves:
        return None
    axes = _of_classes(curves, ("recall", "precision"))
    caption = _in_words("Average precision", report.metrics, "average_precision")
    if len(curves) == 1:
        counts = [one.counts for one in report.per_host.values()]
        share = sum(one[-1] for one in counts) / sum(map(sum, counts))
        axes.line([(0, share), (1, share)], FAINT, 1, DASHED)
        caption += f" By chance it would be {share:.3f}."
    _draw(axes, curves)
    return Drawing("pr", "Precision and recall", caption, axes.svg("pr"))


def _of_classes(curves: Sequence[Curve], labels: tuple[str, str]) -> Axes:
    legend = [(one.name, colour) for one, colour in zip(curves, SERIES)]
    return Axes(_UNIT, _UNIT, labels, legend=legend if len(curves) > 1 else ())


def _draw(axes: Axes, curves: Sequence[Curve]) -> None:
    for curve, colour in zip(curves, SERIES):
        axes.line(zip(curve.x, curve.y), colour)


def _calibration(found: Calibration | None, metrics: Metrics) -> Drawing | None:
    if found is None:
        return None
    axes = Axes(_UNIT, _UNIT, ("probability given", "share that came true"))
    axes.line([(0, 0), (1, 1)], FAINT, 1, DASHED)
    axes.line(zip(found.given, found.true), SERIES[0])
    for given, true, windows in zip(found.given, found.true, found.windows):
        axes.dot(given, true, SERIES[0], 2 + 8 * (windows / sum(found.windows)) ** 0.5)
    error = _in_words("Expected calibration error", metrics, "calibration_error")
    caption = f"{error} A larger dot holds more windows."
    return Drawing("calibration", "Calibration", caption, axes.svg("calibration"))


def _per_host(hosts: Mapping[str, HostFigures]) -> Drawing | None:
    """Draw the AUROC of each test host, the best first; None where no host has it."""
    found = {name: one.metrics.get("auroc") for name, one in hosts.items()}
    known = sorted((-value, name) for name, value in found.items() if value is not None)
    if not known:
        return None
    shown = known[-_MOST_HOSTS:]
    axes = Axes(
        (0, 1.12), (len(shown) - 0.4, -0.6), ("AUROC", ""),
        height=60 + 20 * len(shown), names=[name for _, name in shown],
    )  # fmt: skip
    for place, (minus, _) in enumerate(shown):
        axes.box((0, -minus), (place - 0.35, place + 0.35), SERIES[0])
        axes.note(-minus, place, f"{-minus:.3f}")
    caption = "AUROC on each tested host, the best first."
    if len(known) > len(shown):
        caption += f" The {len(shown)} worst of {len(known)} are shown."
    if len(found) > len(known):
        caption += f" On {len(found) - len(known)} hosts it is not defined."
    return Drawing("hosts", "Hosts", caption, axes.svg("hosts"))


def _timeline(number: int, found: Timeline) -> Drawing:
    """Draw a host's score over time, with the true events and the thresholds."""
    step = found.step
    known = [one for one in found.own if one is not None]
    low, high = around([*found.score, *known, found.alarm])
    legend = [("score", SERIES[0]), ("own threshold", INK), ("pooled threshold", FAINT)]
    legend += [("event", SERIES[1])] if any(found.event) else []
    span = around((0, step * (len(found.score) - 1)))
    axes = Axes(span, (low, high), ("window", "score"), height=260, legend=legend)
    for first, last in _runs(found.event):
        axes.box(((first - 0.5) * step, (last + 0.5) * step), (low, high), SERIES[1], 0.25)
    axes.line([(step * at, one) for at, one in enumerate(found.score)], SERIES[0], 0.8)
    axes.line([(step * at, one) for at, one in enumerate(found.own)], INK, 1)
    axes.line([(span[0], found.alarm), (span[1], found.alarm)], FAINT, 1.6, DASHED)
    caption = f"Score of each window in order; a point is the highest of {step}."
    if found.unlabelled:
        caption += f" {found.unlabelled:,} windows have no label."
    name = f"time-{number}"
    return Drawing(name, f"Score over time: {short(found.host)}", caption, axes.svg(name))


def _runs(values: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield first and last place of each run of true values."""
    for value, places in groupby(range(len(values)), values.__getitem__):
        if value:
            run = list(places)
            yield run[0], run[-1]


def _in_words(name: str, metrics: Metrics, key: str) -> str:
    value, between = metrics.get(key), interval_in_words(metrics, key)
    if value is None:
        return f"{name} is not defined."
    return f"{name} {value:.3f}{between and f' (95 % interval {between})'}."


def interval_in_words(metrics: Metrics, key: str) -> str:
    """Return the interval of a metric, nothing where it has none."""
    interval = metrics.get(f"{key}_ci")
    return f"{interval[0]:.3f} to {interval[1]:.3f}" if isinstance(interval, list) else ""
