"""Metrics of a real coordinator, scraped as Prometheus would."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from typing import Any

import pytest

from tests.harness.brokers import free_port


def _value(text: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    assert found, f"no {series} in\n{text}"
    return float(found[1])


@pytest.mark.smoke
def test_a_job_is_seen_in_the_metrics(fleet: Any, short: str) -> None:
    """What it took, what came of it, and what it cost the ledger; promtool finds no fault."""
    port = free_port()
    fleet.plan(short)
    fleet.coordinator(metrics=f"127.0.0.1:{port}")
    fleet.agent()
    fleet.until("gbt-oracle", "completed")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    assert _value(text, 'fleet_jobs{state="completed"}') == 1
    assert _value(text, 'fleet_hosts{presence="online"}') == 1
    assert _value(text, 'fleet_host_online{host="pi"}') == 1
    assert _value(text, "fleet_broker_connected") == 1
    of = 'model="gbt",outcome="completed"'
    assert _value(text, f"fleet_job_duration_seconds_count{{{of}}}") == 1
    assert _value(text, "fleet_artifacts_received_total") >= 1
    assert _value(text, "fleet_artifact_received_bytes_total") > 1000
    assert _value(text, "fleet_ledger_commit_seconds_count") > 3
    if (promtool := shutil.which("promtool")) is not None:
        checked = subprocess.run(
            [promtool, "check", "metrics"],
            input=text.encode(), capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
