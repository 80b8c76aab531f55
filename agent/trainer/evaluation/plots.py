"""The report's drawings, by matplotlib, as SVG to be put into a page.

Colours are CSS variables of the page, so that the drawings are dark where the page is. The same
figures give the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve, roc_curve

from agent.trainer.common.arrays import AnyArray, Floats
from agent.trainer.evaluation.evaluate import Evaluation
from agent.trainer.evaluation.metrics import BINS, Scored, bin_of, confidence

_INK: Final = "#000001"
_FAINT: Final = "#000002"
_SERIES: Final = tuple(f"#00001{number}" for number in range(8))
_VARIABLES: Final = {
    _INK: "var(--ink)",
    _FAINT: "var(--faint)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES)},
}
_STYLE: Final[dict[str, Any]] = {
    "svg.fonttype": "none",  # text that can be read aloud, found and copied
    "font.family": ["DejaVu Sans"],  # matplotlib's own: the same everywhere
    "font.size": 9,
    "text.parse_math": False,  # a dollar in a host's name is no formula
    "text.color": _INK,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.alpha": 0.4,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}
_POINTS: Final = 300  # of a curve; more cannot be told apart
_MOST_CLASSES: Final = len(_SERIES)
_MOST_HOSTS: Final = 40
_SIZE_IN: Final = (4.6, 3.4)


@dataclass(frozen=True)
class Drawing:
    """A drawing: its name in the page, its title, what it shows in words, and the SVG."""

    name: str
    title: str
    caption: str
    svg: str


def learning_curve(curve: Sequence[tuple[float, float]], best_epoch: int, unit: str) -> Drawing:
    """Draw the training and validation loss of each epoch; `unit` is epoch or round."""
    with _axes("learning") as (figure, axes):
        epochs = np.arange(1, len(curve) + 1)
        values = np.array(curve)
        marker = "o" if len(curve) <= 50 else None
        for number, name in enumerate(("training", "validation")):
            style: Any = {"color": _SERIES[number], "marker": marker, "ms": 3}
            axes.plot(epochs, values[:, number], label=name, **style)
        axes.axvline(best_epoch, color=_INK, linestyle=":", linewidth=1)
        axes.set(xlabel=unit, ylabel="loss")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()
        svg = _svg(figure, "learning")
    low = values[best_epoch - 1, 1]
    caption = f"Validation loss is lowest, {low:.4g}, in {unit} {best_epoch} of {len(curve)} run."
    return Drawing("learning", "Learning curve", caption, svg)


def roc(evaluation: Evaluation, classes: Sequence[str]) -> Drawing | None:
    """Draw the receiver operating characteristic of each class; None where it is undefined."""
    curves = [
        (name, *roc_curve(positive, score)[:2])
        for name, positive, score in _against_the_rest(evaluation.test, classes)
    ]
    if not curves:
        return None
    with _axes("roc") as (figure, axes):
        _draw_diagonal(axes)
        _draw_curves(axes, curves)
        metrics = evaluation.metrics
        at = metrics.get("fpr_realised"), metrics.get("tpr_at_fpr")
        if None not in at:
            axes.plot(*at, "o", color=_INK, ms=5)
            axes.annotate("alarm", at, xytext=(7, -11), textcoords="offset points")
        axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
        _square(axes)
        svg = _svg(figure, "roc")
    return Drawing("roc", "ROC", _with_area("AUROC", evaluation.metrics, "auroc"), svg)


def precision_recall(evaluation: Evaluation, classes: Sequence[str]) -> Drawing | None:
    """Draw precision against recall of each class; None where it is undefined."""
    curves, shares = [], []
    for name, positive, score in _against_the_rest(evaluation.test, classes):
        precision, recall, _ = precision_recall_curve(positive, score)
        curves.append((name, recall, precision))
        shares.append(float(positive.mean()))
    if not curves:
        return None
    with _axes("pr") as (figure, axes):
        if len(shares) == 1:
            axes.axhline(shares[0], color=_FAINT, linestyle="--", linewidth=1)
        _draw_curves(axes, curves)
        axes.set(xlabel="recall", ylabel="precision")
        _square(axes)
        svg = _svg(figure, "pr")
    chance = f" By chance it would be {shares[0]:.3f}." if len(shares) == 1 else ""
    area = _with_area("Average precision", evaluation.metrics, "average_precision")
    return Drawing("pr", "Precision and recall", area + chance, svg)


def calibration(evaluation: Evaluation) -> Drawing | None:
    """Draw observed against predicted shares, by bin; None where no score is a probability."""
    test = evaluation.test
    if not test.probable:
        return None
    given, true = confidence(test)
    bins = bin_of(given)
    counts = np.bincount(bins, minlength=BINS)
    some = counts > 0
    mean_given = np.bincount(bins, weights=given, minlength=BINS)[some] / counts[some]
    mean_true = np.bincount(bins, weights=true, minlength=BINS)[some] / counts[some]
    with _axes("calibration") as (figure, axes):
        _draw_diagonal(axes)
        axes.plot(mean_given, mean_true, color=_SERIES[0])
        areas = 12 + 180 * counts[some] / counts.sum()
        axes.scatter(mean_given, mean_true, s=areas, color=_SERIES[0])
        axes.set(xlabel="probability given", ylabel="share that came true")
        _square(axes)
        svg = _svg(figure, "calibration")
    error = _with_area("Expected calibration error", evaluation.metrics, "calibration_error")
    return Drawing("calibration", "Calibration", f"{error} A larger dot holds more windows.", svg)


def per_host(evaluation: Evaluation, metric: str, title: str) -> Drawing | None:
    """Draw a metric of each test host, the best first; None where no host has it."""
    found = {name: one.get(metric) for name, one in evaluation.per_host.items()}
    known = sorted((-value, name) for name, value in found.items() if value is not None)
    if not known:
        return None
    shown = known[-_MOST_HOSTS:]
    width, _ = _SIZE_IN
    with _axes("hosts", (width, 0.8 + 0.26 * len(shown))) as (figure, axes):
        values = [-minus for minus, _ in shown]
        names = [_short(name) for _, name in shown]
        places = np.arange(len(shown))
        axes.barh(places, values, height=0.7, color=_SERIES[0])
        for place, value in zip(places, values):
            axes.text(value + 0.01, place, f"{value:.3f}", va="center", fontsize=8)
        axes.set(xlim=(0, 1.12), yticks=places, yticklabels=names, xlabel=title)
        axes.set_xticks(np.linspace(0, 1, 6))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        svg = _svg(figure, "hosts")
    caption = f"{title} on each host of the test part, the best first."
    if len(known) > len(shown):
        caption += f" The {len(shown)} worst of {len(known)} are shown."
    if len(found) > len(known):
        caption += f" On {len(found) - len(known)} hosts it is not defined."
    return Drawing("hosts", "Hosts", caption, svg)


def _against_the_rest(
    part: Scored, classes: Sequence[str]
) -> Iterator[tuple[str, AnyArray, Floats]]:
    """Yield each class, whether each window is of it (n,), and its score for it (n,)."""
    if part.score.ndim == 1:
        positive = part.label == 1
        if positive.any() and not positive.all():
            yield classes[-1], positive, part.score
        return
    present = np.unique(part.label)
    if len(present) < 2:
        return
    for k in present[:_MOST_CLASSES]:
        yield classes[k], part.label == k, part.score[:, k]


def _draw_curves(axes: Any, curves: Sequence[tuple[str, Floats, Floats]]) -> None:
    for number, (name, across, up) in enumerate(curves):
        some = np.unique(np.linspace(0, len(across) - 1, _POINTS).round().astype(int))
        axes.plot(across[some], up[some], color=_SERIES[number], label=_short(name))
    if len(curves) > 1:
        axes.legend(fontsize=8)


def _draw_diagonal(axes: Any) -> None:
    axes.plot([0, 1], [0, 1], color=_FAINT, linestyle="--", linewidth=1)


def _square(axes: Any) -> None:
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _with_area(name: str, metrics: dict[str, Any], key: str) -> str:
    value, interval = metrics.get(key), metrics.get(f"{key}_ci")
    if value is None:
        return f"{name} is not defined."
    between = f" (95 % interval {interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    return f"{name} {value:.3f}{between}."


@contextmanager
def _axes(name: str, size_in: tuple[float, float] = _SIZE_IN) -> Iterator[tuple[Figure, Any]]:
    """Make a figure in our style, whatever matplotlib's settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        # The salt decides the names of clip paths, which must be unique in a page.
        mpl.rcParams.update(cast("Any", _STYLE | {"svg.hashsalt": name}))
        figure = Figure(figsize=size_in, layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        yield figure, axes


def _svg(figure: Figure, name: str) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    width, height = (round(72 * inches) for inches in figure.get_size_inches())
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-title">'
    svg = re.sub(r"<svg\b[^>]*>", head, svg, count=1).replace("xlink:href", "href")
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"
