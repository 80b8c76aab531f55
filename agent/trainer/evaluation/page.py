"""The report as a page, and in short as the card of its model.

The page is one HTML file, nothing to be fetched, readable without a network.
"""

from __future__ import annotations

from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from agent.trainer.data.schema import FeatureSchema
from agent.trainer.evaluation.page_tables import (
    FLOORS,
    mark_in_words,
    metric_rows,
    rate,
    rule_in_words,
    scope_in_words,
    tables,
    tested_in_words,
)
from agent.trainer.evaluation.plots import drawings
from agent.trainer.evaluation.report_schema import Report

_MOST_CHANNELS: Final = 10  # on the card


def render(report: Report) -> str:
    """Return the page of a report."""
    found, missing = drawings(report)
    metrics = [("", metric_rows(report.metrics, report.undefined))]
    metrics += [(FLOORS[name], metric_rows(one, {})) for name, one in report.floors.items()]
    if report.probe:
        metrics.append(("The linear probe on the frozen encoder", metric_rows(report.probe, {})))
    return template("page.html.j2", autoescape=True).render(
        report=report,
        metrics=metrics,
        drawings=found,
        missing=missing,
        facts=_facts(report),
        marks=[mark_in_words(one) for one in report.marks],
        scope=scope_in_words(report),
        tested=tested_in_words(report),
        tables=tables(report),
        count=_count,
        share=_share,
    )


def model_card(report: Report, schema: FeatureSchema) -> str:
    """Return the card in Markdown, which lies beside a model.

    After Mitchell et al., "Model Cards for Model Reporting", 2019, in its smallest form.
    """
    important = list(report.importance.permutation.items()) if report.importance else []
    return _CARD.render(
        report=report,
        schema=schema,
        rows=metric_rows(report.metrics, report.undefined),
        important=important[:_MOST_CHANNELS],
        marks=[mark_in_words(one) for one in report.marks],
        rate=rate,
        rule=rule_in_words(report.label_rule),
        scope=scope_in_words(report),
        tested=tested_in_words(report),
        floors=list(report.floors.items()),
    )


def template(name: str, *, autoescape: bool) -> Template:
    """Return the template that lies beside this file."""
    environment = Environment(
        loader=PackageLoader("agent.trainer.evaluation", "."),
        autoescape=autoescape,  # noqa: S701 - not for Markdown, where names are quoted
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


_CARD: Final = template("card.md.j2", autoescape=False)  # once for the jobs that share this module


def _facts(report: Report) -> list[tuple[str, str]]:
    training, hosts = report.training, report.split.hosts
    facts = [
        ("a window's label", rule_in_words(report.label_rule)),
        ("hosts trained on", ", ".join(hosts.training) or "none"),
        ("hosts validated on", ", ".join(hosts.validation) or "none"),
        ("hosts tested on", ", ".join(report.per_host)),
        ("windows left out, across a border", _count(report.split.windows.purged)),
        ("target false-positive rate", f"{report.target_fpr:g}"),
    ]
    for name, threshold in report.thresholds:
        facts.append((f"{name} threshold", "none" if threshold is None else f"{threshold:.6g}"))
    if report.pretraining is not None:
        facts.append(("windows pretrained on", _count(report.pretraining.windows)))
    facts += [
        ("hyperparameters", ", ".join(f"{key} {value}" for key, value in report.hyper.items())),
        ("device", training.device if training else "none"),
        ("versions", ", ".join(f"{name} {one}" for name, one in report.versions.items())),
    ]
    if training and training.elsewhere:
        parts = [f"{one.device}, threads: {one.threads}" for one in training.elsewhere]
        facts.append(("trained elsewhere, too", "; ".join(parts)))
    return facts


def _count(number: int) -> str:
    return f"{number:,}"


def _share(value: int, row: list[int]) -> str:
    return f"{value / max(1, sum(row)):.3f}"
