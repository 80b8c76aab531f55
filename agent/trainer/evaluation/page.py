"""The report as a page: one HTML file, nothing to be fetched, readable without a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from agent.trainer.evaluation import plots
from agent.trainer.evaluation.evaluate import Evaluation
from agent.trainer.evaluation.metrics import Metrics
from agent.trainer.evaluation.report_schema import Report

LABELS: Final = {
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "average_precision": "average precision",
    "balanced_accuracy": "balanced accuracy",
    "brier": "Brier score",
    "calibration_error": "expected calibration error",
    "f1": "F1",
    "fpr_realised": "false-positive rate that came true",
    "macro_f1": "macro F1",
    "probe_auroc": "AUROC of the linear probe",
    "probe_average_precision": "average precision of the linear probe",
    "probe_f1": "F1 of the linear probe",
    "tpr_at_fpr": "true-positive rate at the alarm",
}


def render(report: Report, evaluation: Evaluation) -> str:
    """Return the page of a report and its evaluation."""
    found, missing = _drawings(report, evaluation)
    tables = [("", _rows(report.metrics, report.undefined))]
    if report.probe:
        tables.append(("The linear probe on the frozen encoder", _rows(report.probe, {})))
    environment = Environment(
        loader=PackageLoader("agent.trainer.evaluation", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        report=report,
        tables=tables,
        drawings=found,
        missing=missing,
        facts=_facts(report),
        count=_count,
        share=_share,
    )


def _drawings(report: Report, evaluation: Evaluation) -> tuple[list[plots.Drawing], list[str]]:
    """Return what can be drawn, and why the rest cannot."""
    binary = evaluation.test.score.ndim == 1
    training, unit = report.training, "round" if report.model == "gbt" else "epoch"
    metric, title = ("auroc", "AUROC") if binary else ("balanced_accuracy", "Balanced accuracy")
    why = next(iter(report.undefined.values()), "a part lacks a class")
    wanted = {
        "ROC": plots.roc(evaluation, report.classes),
        "precision and recall": plots.precision_recall(evaluation, report.classes),
        "calibration": plots.calibration(evaluation),
        "learning curve": plots.learning_curve(training.curve, training.best_epoch, unit),
        "hosts": plots.per_host(evaluation, metric, title),
    }
    reasons = {"calibration": "the score is no probability"}
    missing = [
        f"No drawing of {name}: {reasons.get(name, why)}."
        for name, drawing in wanted.items()
        if drawing is None
    ]
    return [drawing for drawing in wanted.values() if drawing is not None], missing


def _rows(metrics: Metrics, undefined: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (name, value, interval or what is wrong) of each metric."""
    rows = []
    for name, value in metrics.items():
        if name.endswith("_ci"):
            continue
        label = LABELS.get(name, name)
        if value is None:
            rows.append((label, "none", undefined.get(name, "not defined")))
            continue
        interval = metrics.get(f"{name}_ci")
        between = f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""
        rows.append((label, f"{value:.3f}", between))
    return rows


def _facts(report: Report) -> list[tuple[str, str]]:
    training, hosts = report.training, report.split.hosts
    facts = [
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
        ("device", f"{training.device}, threads: {report.threads}"),
        ("versions", ", ".join(f"{name} {one}" for name, one in report.versions.items())),
    ]
    if training.elsewhere:
        parts = [f"{one.device}, threads: {one.threads}" for one in training.elsewhere]
        facts.append(("trained elsewhere, too", "; ".join(parts)))
    return facts


def _count(number: int) -> str:
    return f"{number:,}"


def _share(value: int, row: list[int]) -> str:
    return f"{value / max(1, sum(row)):.3f}"
