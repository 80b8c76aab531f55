"""A trainer's report as the job's page shows it; nothing in it is believed to have its shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from broker.errors import BadMessage
from broker.prose import is_figure
from coordinator.web.rows import interval_of

MAX_BYTES: Final = 16 * 1024**2
MAX_POINTS: Final = 2_000
MAX_METRICS: Final = 60


@dataclass(frozen=True, slots=True)
class Report:
    """What a report tells. `curve` has (epoch, training loss, validation loss), at most so many.

    `page` is the report's own page, if it has one.
    """

    curve: tuple[tuple[int, float | None, float | None], ...]
    best_epoch: int | None
    simulated: bool
    page: Path | None

    def forget(self) -> None:
        """Remove its page."""
        if self.page is not None:
            self.page.unlink(missing_ok=True)


def read_report(path: Path, page: Path | None) -> Report:
    """Return a report. Raises `BadMessage` when the file holds none, and OSError."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        document = json.loads(data) if len(data) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadMessage("the report in this artifact cannot be read")
    training = document.get("training")
    training = training if isinstance(training, dict) else {}
    best = training.get("best_epoch")
    return Report(
        _thinned(training.get("curve")),
        best if isinstance(best, int) else None,
        document.get("simulated") is True,
        page,
    )


def _thinned(curve: Any) -> tuple[tuple[int, float | None, float | None], ...]:
    if not isinstance(curve, list):
        return ()
    step = max(1, len(curve) // MAX_POINTS)
    return tuple(
        (epoch, _number(point[0]), _number(point[1]))
        for epoch, point in enumerate(curve, 1)
        if epoch % step == 0 and isinstance(point, list) and len(point) == 2
    )


def _number(value: Any) -> float | None:
    return float(value) if is_figure(value) and not isinstance(value, bool) else None


def metric_rows(metrics: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return name, value and 95 % interval of each metric, in words."""
    found = []
    for name, value in list((metrics or {}).items())[:MAX_METRICS]:
        number = _number(value)
        if number is None or name.endswith("_ci"):
            continue
        interval = interval_of((metrics or {}).get(f"{name}_ci"))
        text = f"{number:.4f}" if abs(number) < 1e6 else f"{number:.4g}"
        found.append((name.replace("_", " "), text, interval))
    return found
