"""What `docs/trainers.md` says of the trainers is so."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from agent.trainer.common import config
from agent.trainer.data.features import STATISTICS
from agent.trainer.evaluation.metrics import BINARY_METRICS, MULTICLASS_METRICS

PAGE = (Path(__file__).parents[3] / "docs" / "trainers.md").read_text(encoding="utf-8")


def _hyperparameter_rows() -> list[str]:
    """Return the table's rows, as the page should have them."""
    found: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for model, spec in config.TRAINERS.items():
        for name, field in spec.hyper.model_fields.items():
            found[name].append((model, field))
    rows = []
    for name, uses in found.items():
        defaults: dict[Any, list[str]] = defaultdict(list)
        for model, field in uses:
            defaults[field.default].append(model)
        shown = "; ".join(f"{value} ({', '.join(models)})" for value, models in defaults.items())
        meant = dict.fromkeys(str(field.description).rstrip(".") for _, field in uses)
        rows.append(f"| `{config.flag_of(name)}` | {shown} | {' / '.join(meant)} |")
    return rows


def test_the_table_of_hyperparameters_is_current() -> None:
    """Every hyperparameter is there with its defaults and meaning, and no other."""
    begin = PAGE.index("| hyperparameter |")
    table = PAGE[begin : PAGE.index("\n\n", begin)].splitlines()[2:]
    assert table == _hyperparameter_rows()


def test_every_model_metric_and_exit_code_is_described() -> None:
    """A reader finds each name that a trainer uses."""
    for name in (*config.TRAINERS, *BINARY_METRICS, *MULTICLASS_METRICS, "<metric>_ci"):
        assert f"`{name}`" in PAGE
    for name in STATISTICS:
        assert name in PAGE
    for code in (config.EXIT_DONE, config.EXIT_FAILED, config.EXIT_BAD_INPUT, 75):
        assert f"| {code} |" in PAGE
