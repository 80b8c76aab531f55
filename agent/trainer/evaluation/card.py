"""The model card that lies beside a model: what it is, what it was made of, what it is good for.

After Mitchell et al., "Model Cards for Model Reporting", 2019, in its smallest form. The figures
are those of the report.
"""

from __future__ import annotations

from agent.trainer.data.schema import FeatureSchema
from agent.trainer.evaluation.host_tables import mark_in_words, rate, rule_in_words, scope_in_words
from agent.trainer.evaluation.page import metric_rows, template
from agent.trainer.evaluation.report_schema import Report

MOST_CHANNELS = 10
_CARD = template("card.md.j2", autoescape=False)  # once for the jobs that share this module


def model_card(report: Report, schema: FeatureSchema) -> str:
    """Return the card in Markdown."""
    important = list(report.importance.permutation.items()) if report.importance else []
    return _CARD.render(
        report=report,
        schema=schema,
        rows=metric_rows(report.metrics, report.undefined),
        important=important[:MOST_CHANNELS],
        marks=[mark_in_words(one) for one in report.marks],
        rate=rate,
        rule=rule_in_words(report.label_rule),
        scope=scope_in_words(report),
        floors=list(report.floors.items()),
    )
