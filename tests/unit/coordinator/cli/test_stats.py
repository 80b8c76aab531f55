"""What `fleet stats` says was done."""

from __future__ import annotations

from typing import Any

from coordinator.cli.stats import _draw, account


def _ended(at: str, end: str) -> dict[str, Any]:
    return {
        "at": at, "name": "job", "model": "gbt", "mode": "oracle", "host": "pi", "end": end,
        "over": end, "s": 1800.0, "whole": True,
    }  # fmt: skip


def test_what_is_counted_is_said_to_be_endings() -> None:
    total, _ = account([_ended("2026-01-02", "cancelled"), _ended("2026-01-03", "cancelled")], [])
    *_, last = _draw(0.0, {"total": total.to_dict(), "by": {}})
    assert last.endswith(": 1.000 h of training; endings of jobs: 2 cancelled")


def _hours(*each_s: float) -> tuple[list[str], str]:
    """What stands in the column, and the total below it."""
    ended = [
        _ended("2026-01-02", "completed") | {"host": f"pi-{number}", "s": s}
        for number, s in enumerate(each_s)
    ]
    total, by = account(ended, ["host"])
    rows = [{"host": name, **one.to_dict()} for name, one in by["host"]]
    table, _, last = _draw(0.0, {"total": total.to_dict(), "by": {"host": rows}})
    return [str(row[1]) for row in table.rows], last.split(": ")[1].split(" h ")[0]


def test_minutes_are_told_where_hours_are_few() -> None:
    """Hours below ten have three digits, so that minutes add up as they are shown."""
    assert _hours(374.0, 194.0) == (["0.104", "0.054"], "0.158")
    assert _hours(36_000.0, 18_000.0) == (["10.00", "5.00"], "15.00")
