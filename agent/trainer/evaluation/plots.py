"""The report's drawings, by matplotlib, as SVG to be put into a page.

Colours are CSS variables of the page, so that the drawings are dark where the page is. The same
figures give the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve, roc_curve

from agent.trainer.common.arrays import AnyArray, Floats
from agent.trainer.evaluation.evaluate import Evaluation
from agent.trainer.evaluation.metrics import BINS, Metrics, Scored, bin_of, confidence

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
_MOST_HOSTS: Final = 40
_WIDTH_IN: Final = 4.6
_UNIT_SQUARE: Final[Any] = {"xlim": (-0.02, 1.02), "ylim": (-0.02, 1.02)}


@dataclass(frozen=True)
class Drawing:
    """A drawing: its name in the page, its title, what it shows in words, and the SVG."""

    name: str
    title: str
    caption: str
    svg: str


def learning_curve(curve: Sequence[tuple[float, float]], best_epoch: int, unit: str) -> Drawing:
    """Draw the training and validation loss of each epoch; `unit` is epoch or round."""
    values = np.array(curve)
    low = values[best_epoch - 1, 1]
    caption = f"Validation loss is lowest, {low:.4g}, in {unit} {best_epoch} of {len(curve)} run."

    def paint(axes: Any) -> None:
        epochs = np.arange(1, len(curve) + 1)
        marker = "o" if len(curve) <= 50 else None
        for number, name in enumerate(("training", "validation")):
            style: Any = {"color": _SERIES[number], "marker": marker, "ms": 3}
            axes.plot(epochs, values[:, number], label=name, **style)
        axes.axvline(best_epoch, color=_INK, linestyle=":", linewidth=1)
        axes.set(xlabel=unit, ylabel="loss")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()

    return Drawing("learning", "Learning curve", caption, _svg("learning", paint))


def roc(evaluation: Evaluation, classes: Sequence[str]) -> Drawing | None:
    """Draw the receiver operating characteristic of each class; None where it is undefined."""
    curves = [
        (name, *roc_curve(positive, score)[:2])
        for name, positive, score in _against_the_rest(evaluation.test, classes)
    ]
    if not curves:
        return None
    metrics = evaluation.metrics

    def paint(axes: Any) -> None:
        _draw_diagonal(axes)
        _draw_curves(axes, curves)
        at = metrics.get("fpr_realised"), metrics.get("tpr_at_fpr")
        if None not in at:
            axes.plot(*at, "o", color=_INK, ms=5)
            axes.annotate("alarm", at, xytext=(7, -11), textcoords="offset points")
        axes.set(xlabel="false-positive rate", ylabel="true-positive rate", **_UNIT_SQUARE)

    return Drawing("roc", "ROC", _in_words("AUROC", metrics, "auroc"), _svg("roc", paint))


def precision_recall(evaluation: Evaluation, classes: Sequence[str]) -> Drawing | None:
    """Draw precision against recall of each class; None where it is undefined."""
    curves, shares = [], []
    for name, positive, score in _against_the_rest(evaluation.test, classes):
        precision, recall, _ = precision_recall_curve(positive, score)
        curves.append((name, recall, precision))
        shares.append(float(positive.mean()))
    if not curves:
        return None
    caption = _in_words("Average precision", evaluation.metrics, "average_precision")
    if len(shares) == 1:
        caption += f" By chance it would be {shares[0]:.3f}."

    def paint(axes: Any) -> None:
        if len(shares) == 1:
            axes.axhline(shares[0], color=_FAINT, linestyle="--", linewidth=1)
        _draw_curves(axes, curves)
        axes.set(xlabel="recall", ylabel="precision", **_UNIT_SQUARE)

    return Drawing("pr", "Precision and recall", caption, _svg("pr", paint))


def calibration(evaluation: Evaluation) -> Drawing | None:
    """Draw observed against predicted shares, by bin; None where no score is a probability."""
    test = evaluation.test
    if not test.probable:
        return None
    given, true = confidence(test)
    bins = bin_of(given)
    counts = np.bincount(bins, minlength=BINS)
    some = counts > 0
    mean_given, mean_true = (
        np.bincount(bins, weights=values, minlength=BINS)[some] / counts[some]
        for values in (given, true)
    )

    def paint(axes: Any) -> None:
        _draw_diagonal(axes)
        axes.plot(mean_given, mean_true, color=_SERIES[0])
        areas = 12 + 180 * counts[some] / counts.sum()
        axes.scatter(mean_given, mean_true, s=areas, color=_SERIES[0])
        axes.set(xlabel="probability given", ylabel="share that came true", **_UNIT_SQUARE)

    error = _in_words("Expected calibration error", evaluation.metrics, "calibration_error")
    caption = f"{error} A larger dot holds more windows."
    return Drawing("calibration", "Calibration", caption, _svg("calibration", paint))


def per_host(evaluation: Evaluation, metric: str, title: str) -> Drawing | None:
    """Draw a metric of each test host, the best first; None where no host has it."""
    found = {name: one.get(metric) for name, one in evaluation.per_host.items()}
    known = sorted((-value, name) for name, value in found.items() if value is not None)
    if not known:
        return None
    shown = known[-_MOST_HOSTS:]

    def paint(axes: Any) -> None:
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

    caption = f"{title} on each host of the test part, the best first."
    if len(known) > len(shown):
        caption += f" The {len(shown)} worst of {len(known)} are shown."
    if len(found) > len(known):
        caption += f" On {len(found) - len(known)} hosts it is not defined."
    svg = _svg("hosts", paint, height_in=0.8 + 0.26 * len(shown))
    return Drawing("hosts", "Hosts", caption, svg)


def _against_the_rest(
    part: Scored, classes: Sequence[str]
) -> Iterator[tuple[str, AnyArray, Floats]]:
    """Yield each class, whether each window is of it (n,), and its score for it (n,)."""
    if len(np.unique(part.label)) < 2:
        return
    if part.score.ndim == 1:
        yield classes[-1], part.label == 1, part.score
        return
    for k in np.unique(part.label)[: len(_SERIES)]:
        yield classes[k], part.label == k, part.score[:, k]


def _draw_curves(axes: Any, curves: Sequence[tuple[str, Floats, Floats]]) -> None:
    for number, (name, across, up) in enumerate(curves):
        some = np.unique(np.linspace(0, len(across) - 1, _POINTS).round().astype(int))
        axes.plot(across[some], up[some], color=_SERIES[number], label=_short(name))
    if len(curves) > 1:
        axes.legend(fontsize=8)


def _draw_diagonal(axes: Any) -> None:
    axes.plot([0, 1], [0, 1], color=_FAINT, linestyle="--", linewidth=1)


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _in_words(name: str, metrics: Metrics, key: str) -> str:
    value, interval = metrics.get(key), metrics.get(f"{key}_ci")
    if value is None:
        return f"{name} is not defined."
    between = f" (95 % interval {interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    return f"{name} {value:.3f}{between}."


def _svg(name: str, paint: Callable[[Any], None], height_in: float = 3.4) -> str:
    """Return what `paint` draws as SVG in our style, whatever matplotlib's settings are."""
    buffer = io.StringIO()
    with mpl.rc_context():
        mpl.rcdefaults()
        # The salt decides the names of clip paths, which must be unique in a page.
        mpl.rcParams.update(cast("Any", _STYLE | {"svg.hashsalt": name}))
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        paint(axes)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    width, height = (round(72 * inches) for inches in figure.get_size_inches())
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-title">'
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace("xlink:href", "href")
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r"<svg\b[^>]*>", head, svg, count=1)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"
