"""The fleet in a real Home Assistant: its log, its entities, its switches and buttons.

Needs `ha_check.py` and a Home Assistant that its `setup.sh` has built: HA_TOOLS names the folder of
the first, HA_LAB that of the second.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("HA_TOOLS") or ROOT.parent / "shared/tools/home-assistant")
LAB = Path(os.environ.get("HA_LAB") or TOOLS)
BUILT = {"2026": LAB / "forky/opt/ha/bin/python", "2024": LAB / "venv/bin/python"}
START_S = 300
OF_HOST = {
    "binary_sensor.pi_online", "binary_sensor.pi_problem", "button.pi_cancel_current_job",
    "button.pi_give_back_current_job",
    "sensor.pi_cpu_use", "sensor.pi_current_job", "sensor.pi_time_left", "sensor.pi_progress",
    "sensor.pi_ram_free", "sensor.pi_ram_use", "sensor.pi_state", "switch.pi_accept_jobs",
}  # fmt: skip
OF_FLEET = {
    "binary_sensor.FLEET_online", "binary_sensor.FLEET_problem", "event.FLEET_event",
    "button.FLEET_reload_manifest", "button.FLEET_requeue_failed_jobs", "sensor.FLEET_state",
    "sensor.FLEET_plan_progress", "sensor.FLEET_hosts_online",
    *(f"sensor.FLEET_{state}_jobs"
      for state in ("pending", "claimed", "running", "completed", "failed", "cancelled")),
}  # fmt: skip


@pytest.fixture(params=sorted(BUILT))
def check(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """`check(*arguments)`: a Home Assistant that looks at a broker; its report is printed."""
    if not (TOOLS / "ha_check.py").is_file():
        pytest.skip(f"{TOOLS} has no ha_check.py; name its folder in HA_TOOLS")
    if not os.path.lexists(BUILT[request.param]):
        pytest.skip(f"HA_LAB ({LAB}) has no Home Assistant {request.param}; setup.sh builds it")

    def start(*arguments: str) -> subprocess.Popen[str]:
        with (tmp_path / "ha_check.log").open("w") as errors:
            return subprocess.Popen(
                [sys.executable, str(TOOLS / "ha_check.py"), "--ha", request.param,
                 "--timeout", str(START_S), *arguments],
                stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**os.environ, "HA_LAB": str(LAB)},
            )  # fmt: skip

    return start


@pytest.mark.slow
def test_whoever_switches_it_off_has_no_ghosts(
    make_fleet: Any, any_broker: Any, client: Any, tmp_path: Path, wait_for: Any
) -> None:
    fleet = make_fleet(tmp_path, any_broker.url, tmp_path)
    retained: dict[str, bytes] = {}

    def shown() -> set[str]:
        while not watcher.got.empty():
            topic, payload = watcher.next()
            retained[topic] = payload
        return {topic.split("/")[-2] for topic, payload in retained.items() if payload}

    watcher = client(any_broker.port, f"watch-{fleet.root}")
    watcher.subscribe(f"homeassistant/+/{fleet.root}__coordinator/+/config")
    watcher.subscribe(f"{fleet.root}/homeassistant/+/state")
    coordinator = fleet.coordinator(more="[homeassistant]\nenabled = true")
    wait_for(lambda: len(shown()) == len(OF_FLEET) + 1, "every entity and the state")
    coordinator.stop()
    memory = tmp_path / "coordinator" / "homeassistant.json"
    assert memory.exists()
    coordinator = fleet.coordinator()
    wait_for(lambda: not shown(), "nothing to be left")
    assert not memory.exists()
    coordinator.stop()

    retained.clear()
    coordinator = fleet.coordinator()
    assert fleet.status()["jobs"]["pending"] == 0
    assert shown() == set(), "who never switches it on pays nothing"
    coordinator.stop()
    memory.write_text("damaged", "utf-8")
    coordinator = fleet.coordinator(more="[homeassistant]\nenabled = true")
    wait_for(lambda: len(shown()) == len(OF_FLEET) + 1, "them all, with new meters")
    assert "its meters start at zero" in coordinator.said()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_the_fleet_in_a_real_home_assistant(
    check: Any, make_fleet: Any, new_broker: Any, data: Path, tmp_path: Path, long: str, kind: str
) -> None:
    broker = new_broker(kind)
    fleet = make_fleet(tmp_path, broker.url, data)
    fleet.plan(long)
    fleet.coordinator(more="[homeassistant]\nenabled = true")
    pi = fleet.agent("pi")
    fleet.until("gbt-oracle", "running")
    fleet.agent("gone").stop()

    cli = [sys.executable, "-m", "coordinator.cli", "--broker", fleet.broker_url,
           "--root", fleet.root]  # fmt: skip
    then = f"cd {ROOT}; {shlex.join(cli)} forget gone; kill -9 {pi.process.pid}"
    process = check(
        "--broker", f"127.0.0.1:{broker.port}", "--protocol", "5", "--allow-unavailable",
        "--expect-state", r"sensor\.pi_state=working", "--expect", r"switch\.pi_accept_jobs",
        "--expect-state", r"sensor\.gone_state=left",
        "--press", r"button\.pi_cancel_current_job", "--set", r"switch\.pi_accept_jobs=off",
        "--expect-topic", f"{fleet.root}/homeassistant/pi/set",
        "--then", then, "--watch", "20",
        "--expect-after", r"sensor\.pi_cpu_use=unavailable",
        "--expect-after", r"sensor\.pi_state=cut-off",
        "--expect-after", r"binary_sensor\.pi_online=off",
        "--expect-after", r"binary_sensor\.pi_problem=on",
        "--expect-after", r"switch\.pi_accept_jobs=off",
    )  # fmt: skip
    output, _ = process.communicate(timeout=3 * START_S)
    report = json.loads(output)
    failed = [one for one in report["checks"] if not one["ok"]]
    assert not failed, json.dumps([failed, report.get("log_problems")], indent=1)
    assert report["log_problems"] == []
    assert report["repairs"] == []

    devices = {device["name"]: device for device in report["devices"]}
    name = f"Training fleet {fleet.root}"
    assert {*devices} == {name, "pi", "gone"}
    assert devices["pi"]["via"] == devices["gone"]["via"] == name
    found = {e["entity_id"] for device in devices.values() for e in device["entities"]}
    slug = name.lower().replace(" ", "_")
    assert found == (
        OF_HOST
        | {one.replace(".pi_", ".gone_") for one in OF_HOST}
        | {one.replace("FLEET", slug) for one in OF_FLEET}
    )
    away = {one for one in found if one.split(".")[1].startswith("gone_")}
    assert {*report["unavailable"]} <= away
    assert {*report["unknown"]} <= {"sensor.pi_time_left"}

    gone = {entity for _, entity, _, now in report["timeline"] if now is None}
    assert away <= gone, "a forgotten host disappears"
    told = [one for _, one, _, now in report["timeline"] if one.startswith("event.") and now]
    assert len(told) > 1, "that the plan is done is an event"
    assert fleet.show("gbt-oracle")["state"] == "cancelled"
    events = subprocess.run(
        [*cli, "events", "--who", "homeassistant"], capture_output=True, text=True, cwd=ROOT,
        timeout=60, check=True,
    ).stdout  # fmt: skip
    assert "cancelled" in events
    assert "drain" in events
