"""The face of Home Assistant: what is published, when, and what is not."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected, Incoming
from coordinator.faces.energy import remembered
from coordinator.faces.homeassistant import DRIFT_EVERY_S, MESSAGES_A_LOOK, farewell
from tests.harness.coordinator import Host, spec
from tests.harness.home import home

__all__ = ["home"]

GIB = 2**30
GPU = m.Gpu(index=0, name="RTX", vram_total_bytes=8 * GIB, vram_free_bytes=2 * GIB,
            use_percent=90.0, power_w=200.0)  # fmt: skip


def test_a_host_is_shown_when_it_has_said_what_it_is(home: Any) -> None:
    fleet = home(spec())
    fleet.host("pi")
    topics = [topic for topic, _ in fleet.published]
    assert topics.index("fleet/homeassistant/pi/state") > max(
        at for at, topic in enumerate(topics) if "/fleet__pi/" in topic
    )
    first = next(at for at, topic in enumerate(topics) if "/fleet__pi/" in topic)
    assert "fleet/homeassistant/coordinator/state" in topics[:first]
    state = fleet.state("pi")
    assert (state["state"], state["job"]) == ("working", "job")
    assert state["ram"] == 25.0
    assert state["ram_free_gib"] == 6.0


def test_what_a_host_does_is_told(home: Any) -> None:
    fleet = home(spec("long-job"))
    pi = fleet.host("pi")
    job = pi.runs("long-job")
    pi.says(fleet.topics.progress("pi", job.job_id),
            m.Progress(attempt=1, epoch=30, epochs=120, eta_s=7200.0))  # fmt: skip
    ends_s = fleet.now.wall_s + 7200
    fleet.passes(30)
    state = fleet.state("pi")
    assert (state["state"], state["job"], state["progress"]) == ("working", "long-job", 25)
    assert state["jobs"][0] == {
        "name": "long-job", "job_id": job.job_id, "phase": "running", "progress": 0.25
    }  # fmt: skip
    fleet.passes(300)
    pi.beats((job.job_id, 1, "running"))
    fleet.passes(30)
    assert fleet.state()["time_left_min"] == pytest.approx(120 - 331 / 60, abs=0.6)
    assert abs(datetime.fromisoformat(fleet.state()["eta"]).timestamp() - ends_s) <= 30, (
        "it is counted from when the progress came"
    )
    pi.reports(m.Failed, job, error="no", transient=False)
    fleet.passes(2)
    state = fleet.state("pi")
    assert (state["state"], state["job"], state["progress"]) == ("idle", "idle", 0)
    assert (state["eta"], state["time_left_min"]) == (None, 0)


@pytest.mark.parametrize("eta_s", [1e308, 1e13])
def test_a_trainer_that_reckons_with_ages_ends_no_coordinator(home: Any, eta_s: float) -> None:
    fleet = home(spec())
    pi = fleet.host("pi")
    job = pi.runs()
    pi.says(fleet.topics.progress("pi", job.job_id),
            m.Progress(attempt=1, epoch=25, epochs=100, eta_s=eta_s))  # fmt: skip
    fleet.passes(30)
    assert fleet.state()["eta"] > "2050"


def test_where_nothing_changes_nothing_is_published_and_no_turn_is_wanted(home: Any) -> None:
    fleet = home()
    pi = fleet.host("pi")
    fleet.published.clear()
    for _ in range(20):
        pi.beats()
        fleet.passes(30)
    assert fleet.published == []
    pi.status("offline", "goodbye")
    fleet.passes(60)
    for _ in range(2):
        due_s = fleet.face.next_deadline()
        assert due_s is None
        fleet.handle()


def test_what_drifts_is_published_now_and_then_what_matters_at_once(home: Any) -> None:
    fleet = home()
    pi = fleet.host("pi")
    fleet.passes(30)
    fleet.published.clear()
    for load in range(40):
        pi.beats(cpu_percent=float(load))
        fleet.passes(0.5)
    said = [json.loads(payload)["cpu"] for topic, payload in fleet.published]
    assert len(said) <= 1 + 20 / DRIFT_EVERY_S
    fleet.passes(DRIFT_EVERY_S)
    assert fleet.state()["cpu"] == 39.0, "the last one is told in the end"
    pi.beats(cpu_percent=50.0)
    fleet.passes(1)
    fleet.told("pi", "drain")
    fleet.passes(1.1)
    assert fleet.state()["accepts"] is False


def test_everything_is_stated_again_when_home_assistant_comes(home: Any) -> None:
    fleet = home()
    fleet.host("pi")
    fleet.passes(60)
    before = fleet.configs()
    fleet.published.clear()
    for payload in (b"offline", b"", b"\xff", b"ONLINE"):
        fleet.handle(Incoming("homeassistant/status", payload))
    fleet.passes(5)
    assert fleet.published == [], "only `online` is a birth"
    fleet.born()
    assert fleet.published == [], "not at once: everybody else speaks now, too"
    fleet.passes(5)
    topics = [topic for topic, _ in fleet.published]
    assert set(topics) == {topic for topic in fleet.retained if "homeassistant/" in topic}
    assert fleet.configs() == before
    fleet.published.clear()
    for _ in range(50):
        fleet.born()
        fleet.passes(0.1)
    fleet.passes(20)
    assert [topic for topic, _ in fleet.published] == topics


def test_a_broker_that_forgot_everything_is_told_again(home: Any) -> None:
    fleet = home()
    pi = fleet.host("pi")
    kept = {topic for topic in fleet.retained if "homeassistant/" in topic}
    fleet.handle(Disconnected("gone"))
    fleet.retained.clear()
    fleet.published.clear()
    pi.beats(cpu_percent=77.0)
    fleet.passes(60)
    assert fleet.published == []
    fleet.handle(Connected("again"))
    fleet.passes(2)
    assert {topic for topic in fleet.retained if "homeassistant/" in topic} == kept


def test_a_large_fleet_is_told_in_portions(home: Any) -> None:
    """Everything at once would be thousands of messages in one turn."""
    fleet = home()
    for number in range(100):
        Host(fleet, f"h{number}").joins()
    sizes = []
    while (due_s := fleet.face.next_deadline()) is not None:
        fleet.published.clear()
        fleet.mono_s = max(fleet.mono_s, due_s)
        fleet.handle()
        sizes.append(len(fleet.published))
    assert len(sizes) >= 3
    assert max(sizes) <= MESSAGES_A_LOOK + 60
    assert sum(topic.startswith("homeassistant/") for topic in fleet.retained) > 1000
    assert sum(topic.startswith("fleet/homeassistant/h") for topic in fleet.retained) == 100


def test_measures_that_a_host_tells_bring_their_entities(home: Any) -> None:
    fleet = home()
    pi = fleet.host("pi")
    assert "sensor/gpu" not in fleet.configs("pi")
    pi.beats(gpus=(GPU,))
    fleet.passes(2)
    assert {"sensor/gpu", "sensor/vram", "sensor/power_w", "sensor/energy_kwh"} <= {
        *fleet.configs("pi")
    }
    state = fleet.state()
    assert (state["gpu"], state["vram"], state["power_w"]) == (90.0, 75.0, 200.0)
    assert state["energy_kwh"] == 0.0
    fleet.retained.clear()
    fleet.start(fleet.kept)
    pi.seq = 0
    pi.joins()
    fleet.passes(2)
    assert "sensor/energy_kwh" in fleet.configs("pi")


def test_power_is_summed_to_energy(home: Any) -> None:
    fleet = home()
    pi = fleet.host("pi")
    for _ in range(121):
        pi.beats(gpus=(GPU,))
        fleet.passes(30)
    assert fleet.state()["energy_kwh"] == pytest.approx(0.2, rel=0.05)
    before = fleet.state()["energy_kwh"]
    fleet.passes(7200)
    pi.beats(gpus=(GPU,))
    fleet.passes(300)
    assert fleet.state()["energy_kwh"] - before < 0.01
    shown = fleet.state()["energy_kwh"]
    pi.beats(gpus=(GPU,))
    fleet.passes(2)
    fleet.shell.close()
    assert remembered(fleet.kept).hosts["pi"].energy_wh >= 1000 * shown, "a clean end keeps it"


def test_the_meter_goes_on_after_a_restart_and_never_back(home: Any) -> None:
    fleet = home()
    pi = fleet.host("pi")
    for _ in range(33):
        pi.beats(gpus=(GPU,))
        fleet.passes(30)
        shown = fleet.state()["energy_kwh"] or 0.0
        meters = remembered(fleet.kept).hosts
        assert shown <= round(meters["pi"].energy_wh / 1000, 3)
    assert shown > 0.03
    fleet.start(fleet.kept)
    pi.joins(gpus=(GPU,))
    pi.beats(gpus=(GPU,))
    fleet.passes(2)
    assert fleet.state()["energy_kwh"] >= shown


@pytest.mark.parametrize("kept", [b"x", b"[]", b'{"hosts":{"pi":{"energy_wh":-1}}}',
                                  b'{"hosts":{"pi":{"energy_wh":"NaN"}}}'])  # fmt: skip
def test_what_was_kept_is_read_with_care(kept: bytes) -> None:
    with pytest.raises(ValueError, match="kept"):
        remembered(kept)


def test_jobs_that_end_are_events(home: Any) -> None:
    fleet = home(spec("bad", priority=1), spec("good"))
    pi = fleet.host("pi", slots=2)
    pi.reports(m.Failed, fleet.job("bad"), error="out of\nmemory", transient=False)
    fleet.passes(2)
    (failed,) = fleet.events()
    assert (failed.event_type, failed.job, failed.host) == ("job_failed", "bad", "pi")
    assert failed.error == "out of memory"
    assert fleet.state("coordinator")["problem"] is True
    fleet.asks(m.AskCancel(id="c", job="good"))
    fleet.passes(2)
    (done,) = fleet.events()
    assert (done.event_type, done.jobs) == (
        "plan_done", {"completed": 0, "failed": 1, "cancelled": 1}
    )  # fmt: skip
    assert not any(topic.endswith("/event") for topic in fleet.retained)
    fleet.start(fleet.kept)
    fleet.passes(60)
    assert fleet.events() == [], "a plan that was done is not done again"


def test_what_is_wrong_with_a_host_is_a_state_and_not_an_absence(home: Any) -> None:
    fleet = home()
    pi = fleet.host("pi", data_id=None)
    assert fleet.state()["problems"] == ["it has no prepared data"]
    assert fleet.state()["state"] == "no data"
    assert "no data" in fleet.configs("pi")["sensor/state"]["options"]
    pi.joins()
    fleet.passes(2)
    assert (fleet.state()["state"], fleet.state()["problem"]) == ("idle", False)
    pi.status("offline", "lost")
    fleet.passes(2)
    state = fleet.state()
    assert (state["state"], state["online"], state["problem"]) == ("cut-off", False, True)
    pi.joins()
    pi.status("offline", "goodbye")
    fleet.passes(2)
    state = fleet.state()
    assert (state["state"], state["online"], state["problem"]) == ("left", False, False)


def test_a_long_name_or_an_odd_one_fits_home_assistant(home: Any) -> None:
    """It takes 255 characters as a state, on one line."""
    fleet = home(spec("x" * 300), spec("y\nz"))
    fleet.host("pi", slots=2)
    state = fleet.state()
    assert len(state["job"]) <= 250
    assert "\n" not in state["job"]


def test_whoever_switches_it_off_has_no_ghosts(home: Any) -> None:
    fleet = home()
    fleet.host("pi")
    shown = {topic for topic in fleet.retained if "homeassistant/" in topic}
    out = farewell(fleet.topics, fleet.kept)
    assert {one.topic for one in out} >= shown
    assert all(one.retain and not one.payload for one in out)
