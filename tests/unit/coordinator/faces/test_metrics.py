"""Metrics: what is counted, and the text that Prometheus reads."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from broker.protocol.link_events import Incoming
from broker.protocol.messages import AskPush, Failed, Gpu, encode
from coordinator.faces import metrics
from coordinator.faces.metrics import MAX_MODELS, METRICS, OTHER, Inbox, Tally
from coordinator.jobs.jobs import Change
from coordinator.jobs.records import PushedRecord
from coordinator.jobs.states import Event
from tests.harness import programs
from tests.harness.coordinator import OPERATOR, Fleet, spec

ROOT = Path(__file__).resolve().parents[4]
NOTHING = Inbox({}, {}, connected=True)


class _Metered(Fleet):
    """A fleet whose coordinator counts what it commits."""

    def __init__(self, *specs: Any) -> None:
        self.tally = Tally()
        super().__init__(*specs)

    def start(self) -> None:
        super().start()
        take = self.core.take

        def noted() -> Any:
            changes, effects = take()
            if changes:
                self.tally.on_commit(changes, 0.002)
            return changes, effects

        self.core.take = noted  # type: ignore[method-assign]

    def text(self, inbox: Inbox = NOTHING) -> str:
        class Collector:
            def collect(_) -> Any:  # noqa: N805 - the fleet is `self`
                return metrics.read(self.core.world, self.tally, inbox, self.now)

        return generate_latest(Collector()).decode()

    def scraped(self, inbox: Inbox = NOTHING) -> dict[str, dict[str, float]]:
        """Return the samples by name, by their labels."""
        found: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families(self.text(inbox)):
            for one in family.samples:
                labels = ",".join(f'{key}="{value}"' for key, value in one.labels.items())
                found.setdefault(one.name, {})[labels] = one.value
        return found


def test_jobs_and_hosts_are_counted_by_state() -> None:
    fleet = _Metered(spec("one"), spec("two"))
    fleet.host("pi").joins()
    fleet.host("pi").runs(fleet.history[-1][0])
    fleet.host("pc").joins()
    fleet.host("pc").status("offline", "goodbye")
    seen = fleet.scraped()
    assert seen["fleet_jobs"]['state="running"'] == 1
    assert seen["fleet_jobs"]['state="failed"'] == 0
    assert len(seen["fleet_jobs"]) == 6
    assert seen["fleet_hosts"]['presence="online"'] == 1
    assert seen["fleet_hosts"]['presence="left"'] == 1
    assert seen["fleet_hosts"]['presence="cut-off"'] == 0
    assert seen["fleet_job_events_total"]['event="started"'] == 1


def test_a_host_shows_its_load_while_it_is_online() -> None:
    """In base units; an old figure would look like a new one, so there is none when it is away."""
    fleet = _Metered()
    host = fleet.host("pc").joins()
    gpu = Gpu(index=0, vram_total_bytes=8 * 2**30, vram_free_bytes=2**30, use_percent=90, power_w=9)
    host.beats(cpu_percent=25.0, load_1m=1.5, gpus=(gpu,))
    seen = fleet.scraped()
    assert seen["fleet_host_online"]['host="pc"'] == 1
    assert seen["fleet_host_cpu_ratio"]['host="pc"'] == 0.25
    assert seen["fleet_host_memory_bytes"]['host="pc"'] == 8 * 2**30
    assert seen["fleet_gpu_use_ratio"]['gpu="0",host="pc"'] == 0.9
    assert seen["fleet_gpu_power_watts"]['gpu="0",host="pc"'] == 9
    host.status("offline", "lost")
    seen = fleet.scraped()
    assert seen["fleet_host_online"]['host="pc"'] == 0
    assert "fleet_host_cpu_ratio" not in seen
    assert "fleet_gpu_use_ratio" not in seen


def test_what_jobs_wait_and_take_and_lose_is_measured() -> None:
    fleet = _Metered(spec("one", retries=0), spec("two"))
    fleet.passes(90.0)
    waits = fleet.scraped()["fleet_jobs_oldest_pending_seconds"]
    assert waits[""] == pytest.approx(90.0, abs=1)
    pi = fleet.host("pi").joins()
    job = pi.runs("one")
    fleet.mono_s += 45.0
    pi.reports(Failed, job, error="no memory", transient=False)
    seen = fleet.scraped()
    of = 'model="gbt",outcome="failed"'
    buckets = seen["fleet_job_duration_seconds_bucket"]
    assert buckets[f'le="30.0",{of}'] == 0
    assert buckets[f'le="60.0",{of}'] == 1
    assert buckets[f'le="+Inf",{of}'] == 1
    assert seen["fleet_job_duration_seconds_count"][of] == 1
    assert seen["fleet_job_duration_seconds_sum"][of] == pytest.approx(45.0)
    assert seen["fleet_attempts_lost_total"][""] == 0
    pi.runs("two")
    fleet.passes(700.0)
    assert fleet.scraped()["fleet_attempts_lost_total"][""] == 1, "longer silent than its lease"


def test_programs_and_pushes_are_counted() -> None:
    fleet = _Metered()
    offer = programs.offer()
    known = programs.offer(digest=programs.OTHER)
    fleet.core.world.pushed[known.title] = PushedRecord(known, fleet.now.text(), OPERATOR)
    fleet.handle(Incoming(
        fleet.topics.operator_request(OPERATOR), encode(AskPush(id="push", offer=offer))
    ))  # fmt: skip
    seen = fleet.scraped()
    assert seen["fleet_programs"][""] == 1
    assert seen["fleet_programs_bytes"][""] == len(programs.PARCEL)
    assert seen["fleet_datasets"][""] == seen["fleet_datasets_bytes"][""] == 0
    assert seen["fleet_transfers"] == {
        'direction="up"': 0, 'direction="down"': 0, 'direction="push"': 1,
    }  # fmt: skip


def test_models_beyond_the_first_fifty_share_a_label() -> None:
    tally = Tally()
    job = Fleet(spec()).job()
    for number in range(MAX_MODELS + 1):
        ended = replace(job, spec=replace(job.spec, model=f"m{number}"), ran_s=1.0)
        tally.on_commit([Change(Event.FAILED, job, ended, "", "", "")], 0.001)
    labels = {one.labels["model"] for one in tally.durations.collect()[0].samples}
    assert len(labels) == MAX_MODELS + 1
    assert OTHER in labels


def test_dropped_and_refused_messages_are_counted_by_kind() -> None:
    fleet = _Metered()
    fleet.core.world.dropped["heartbeat"] += 2
    fleet.core.world.refused["signature"] += 1
    seen = fleet.scraped(Inbox({"bulk": 7}, {"bulk": 3}, connected=False))
    assert seen["fleet_messages_dropped_total"]['kind="heartbeat"'] == 2
    assert seen["fleet_messages_refused_total"]['reason="signature"'] == 1
    assert seen["fleet_inbox_messages"]['lane="bulk"'] == 7
    assert seen["fleet_inbox_dropped_total"]['lane="bulk"'] == 3
    assert seen["fleet_broker_connected"][""] == 0


def test_names_follow_the_conventions() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len({*names})
    for metric in METRICS:
        assert metric.name.startswith("fleet_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert not re.search(r"_(ms|percent|gib|mib|minutes)", metric.name), metric.name


@pytest.mark.system
def test_promtool_finds_no_fault(tmp_path: Path) -> None:
    """Names, kinds, units and help, as Prometheus' own linter wants them; and the rules."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; Debian: apt-get install prometheus")
    fleet = _Metered(spec("one", retries=0))
    pi = fleet.host("pi").joins()
    pi.reports(Failed, pi.runs("one"), error="x", transient=False)
    pi.beats(cpu_percent=1.0, load_1m=1.0, gpus=(Gpu(index=0, power_w=9, use_percent=1.0),))
    fleet.core.world.dropped["heartbeat"] += 1
    inbox = Inbox({"bulk": 0}, {"bulk": 1}, connected=True)
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=fleet.text(inbox).encode(), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    for what, file in (("rules", "fleet.rules.yml"), ("config", "prometheus.yml")):
        checked = subprocess.run(
            [promtool, "check", what, str(ROOT / "etc/prometheus" / file)],
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_rules_and_the_page_name_metrics_that_there_are() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    for one in METRICS:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        assert f"| `{one.name}` | {one.kind} | {labels} | {one.help} |\n" in page
    known = {metric.name for metric in METRICS}
    known |= {f"{name}{end}" for name in known for end in ("_bucket", "_sum", "_count")}
    for path in ("docs/reference/metrics.md", "etc/prometheus/fleet.rules.yml"):
        named = set(re.findall(r"\bfleet_[a-z0-9_]+", (ROOT / path).read_text("utf-8")))
        assert named <= known, path
