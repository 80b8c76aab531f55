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
    """A job that was cancelled, requeued and cancelled again is one job of `fleet status`."""
    total, _ = account([_ended("2026-01-02", "cancelled"), _ended("2026-01-03", "cancelled")], [])
    *_, last = _draw(0.0, {"total": total.to_dict(), "by": {}})
    assert last.endswith(": 1.00 h of training; endings of jobs: 2 cancelled")
