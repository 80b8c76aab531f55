"""A result that waits for room on the coordinator's disk: everybody is told, with the figures."""

from __future__ import annotations

import pytest

import broker.protocol.messages as m
from broker.protocol.topic_table import Kind
from broker.stream.ranges import RangeSet
from coordinator.cli import status as verb
from coordinator.cli import why_lines
from coordinator.cli.lists import _draw_jobs as draw_jobs
from coordinator.client.mirror import Snapshot
from coordinator.core.effects import OpenPart, PartFailed, PartOpened
from coordinator.faces import metrics
from coordinator.faces.homeassistant_states import fleet_state
from coordinator.faces.metrics import Inbox, Tally
from coordinator.scheduler.play import Held
from coordinator.top import headline
from tests.harness.coordinator import HEX, running
from tests.harness.drawn import drawn
from tests.unit.coordinator.scheduler.test_forecast import host, named, whole

GIB = 2**30
LACK = m.NoRoom(needed_bytes=3 * GIB, free_bytes=GIB, reserve_bytes=GIB // 16)
WORDS = (
    "waits for room on the coordinator's disk: it needs 3.0 GiB beside a reserve of 64.0 MiB, and "
    "1.0 GiB is free"
)


class Scene:
    """A job is trained; its host announces the result, as long as it is not taken."""

    def __init__(self) -> None:
        self.fleet, self.pi, job = running()
        self.pi.trains(job, 2, 2, eta_s=0.0)

    def offers(self) -> OpenPart:
        """It announces the result; what the disk is asked."""
        assert self.pi.finishes(self.fleet.job()) == "wanted"
        opened: OpenPart = self.fleet.took(OpenPart)[-1]
        return opened

    def is_refused(self, lack: m.NoRoom = LACK) -> None:
        part = self.offers().part
        self.fleet.handle(PartFailed(HEX, part, no_room=lack))

    def summary(self) -> m.Summary:
        self.fleet.sent.clear()
        self.fleet.passes(0.3)
        said = [one for topic, one in self.fleet.sent if topic.kind is Kind.SUMMARY]
        found: m.Summary = said[-1]
        return found


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.is_refused()
    return made


def test_every_answer_has_the_figures(scene: Scene) -> None:
    """What is needed, free and kept in reserve, for scripts."""
    figures = LACK.model_dump(exclude={"jobs"})
    assert scene.fleet.listed()[0]["no_room"] == figures
    assert scene.fleet.why()["no_room"] == figures
    fault = scene.fleet.status()["coordinator"]["disk_fault"]
    assert fault == {"code": "low", "jobs": 1, **figures}
    assert scene.summary().no_room == LACK


@pytest.mark.words
def test_people_are_told_in_words(scene: Scene) -> None:
    """By list, why, status, top, Home Assistant and Prometheus; nobody says that it ends soon."""
    rows = scene.fleet.listed()
    assert f"job: its result {WORDS}" in drawn(draw_jobs(rows), 400)
    data = scene.fleet.why()
    assert f"Its result {WORDS}." in drawn(why_lines.in_lines((data, None)), 400)
    status = scene.fleet.status()
    assert f"1 finished job {WORDS}" in drawn(verb._draw((status, None)), 400)
    seen = Snapshot(1, {}, {}, {}, {}, scene.summary(), _birth(), {}, {})
    said = headline.trouble(seen, None, 1.0)
    assert said == f"The coordinator's disk is low: 1 finished job {WORDS}"
    world = scene.fleet.core.world
    assert fleet_state(world).problems == (f"1 finished job {WORDS}",)
    readings = metrics.read(world, Tally(), Inbox({}, {}, connected=True), scene.fleet.now)
    found = {one.name: one.samples[0].value for one in readings if one.samples}
    assert found["fleet_store_waiting_jobs"] == 1
    assert found["fleet_store_needed_bytes"] == 3 * GIB
    assert found["fleet_store_free_bytes"] == GIB
    assert found["fleet_store_reserve_bytes"] == GIB // 16
    plan = scene.fleet.asks(m.AskPlan(id="p", states=("running",))).data["jobs"][0]
    assert plan["no_room"] is True
    held = Held(named("job"), "pi", 40.0, 1.0, 0.0, uses_slot=False, is_stuck=plan["no_room"])
    found = whole(views=[host("pi")], held=(held,))
    assert not found.outlooks[held.spec.job_id].ends_known


def _birth() -> m.Status:
    return m.Status.model_validate(
        {"state": "online", "reason": "birth", "session": "s", "instance": "i", "boot_id": "b"}
    )


def test_the_newest_figures_count(scene: Scene) -> None:
    """Somebody has made some room, and not enough."""
    scene.fleet.passes(60)
    newer = LACK.model_copy(update={"free_bytes": 2 * GIB})
    scene.is_refused(newer)
    assert scene.summary().no_room == newer


def test_nothing_is_said_any_more_once_there_is_room(scene: Scene) -> None:
    part = scene.offers().part
    scene.fleet.handle(PartOpened(HEX, RangeSet(), part))
    assert scene.summary().no_room is None
    assert scene.fleet.status()["coordinator"]["disk_fault"] is None
    assert "no_room" not in scene.fleet.listed()[0]


def test_a_job_that_is_cancelled_waits_for_nothing(scene: Scene) -> None:
    scene.fleet.asks(m.AskCancel(id="c", job="job"))
    assert scene.summary().no_room is None
