"""The report as a page: one HTML file, nothing to be fetched, readable without a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from agent.trainer.evaluation.host_tables import (
    FLOORS,
    host_tables,
    mark_in_words,
    rule_in_words,
    scope_in_words,
)
from agent.trainer.evaluation.page_tables import figures
from agent.trainer.evaluation.plots import drawings, interval_in_words
from agent.trainer.evaluation.report_schema import Metrics, Report

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


def render(report: Report) -> str:
    """Return the page of a report."""
    found, missing = drawings(report)
    tables = [("", metric_rows(report.metrics, report.undefined))]
    tables += [(FLOORS[name], metric_rows(one, {})) for name, one in report.floors.items()]
    if report.probe:
        tables.append(("The linear probe on the frozen encoder", metric_rows(report.probe, {})))
    return template("page.html.j2", autoescape=True).render(
        report=report,
        tables=tables,
        drawings=found,
        missing=missing,
        facts=_facts(report),
        marks=[mark_in_words(one) for one in report.marks],
        scope=scope_in_words(report),
        host_tables=[*host_tables(report, LABELS), *figures(report)],
        count=_count,
        share=_share,
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


def _facts(report: Report) -> list[tuple[str, str]]:
    training, hosts = report.training, report.split.hosts
    facts = [
        ("a window's label", rule_in_words(report.label_rule)),
        ("hosts trained on", ", ".join(hosts.training)),
        ("hosts validated on", ", ".join(hosts.validation)),
        ("hosts tested on", ", ".join(hosts.test)),
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
