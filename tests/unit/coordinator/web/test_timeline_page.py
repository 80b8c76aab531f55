"""The attempts that the timeline draws: asked for once, told once, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
from broker.clock import Now
from broker.protocol.messages import AskAttempts, Status, encode
from broker.protocol.topics import Topics
from broker.system.settings import BrokerSettings
from coordinator.client.contact import NotDone
from coordinator.client.watcher import Watcher
from coordinator.web.hub import Hub
from coordinator.web.pages.timeline_page import Attempts, Told, attempt_of
from tests.harness.played import played

TOPICS = Topics()
NOW = Now(1.0, 1_000_000.0)
PAGE = 2
TOLD = {
    "job_id": "a", "name": "a", "attempt": 1, "host": "pi", "end": "completed", "s": 60.0,
    "began": "2026-05-28T10:00:00Z", "at": "2026-05-28T10:10:00Z",
}  # fmt: skip


class Scene:
    """A coordinator that answers what is asked, a hub that hears of jobs, and the test's time."""

    def __init__(self, most: int = 100) -> None:
        self.past: list[dict[str, Any]] = []
        self.watcher = Watcher(BrokerSettings(), clock=lambda: NOW)
        self.hub = Hub(lambda _: self.watcher, lambda: NOW)
        self.asked: list[AskAttempts] = []
        self.fault = ""
        self.attempts = Attempts(self.hub, self.ask, self.wait, most)
        self._waits: list[asyncio.Future[None]] = []

    async def ask(self, request: Any) -> Any:
        """The coordinator answers, the newest first, unless it is at fault; a page is small."""
        self.asked.append(request)
        if self.fault:
            raise NotDone(self.fault)
        last = len(self.past) if request.before is None else request.before - 1
        first = max(request.after, last - PAGE)
        return {
            "attempts": self.past[first:last][::-1], "newest": len(self.past),
            "next": first + 1 if first > request.after else None,
        }  # fmt: skip

    async def wait(self, _: float) -> None:
        """Until the test says that the time is over."""
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.append(waits)
        await waits

    async def time_passes(self) -> None:
        """Let the time until the next question be over."""
        waits, self._waits = self._waits, []
        for one in waits:
            one.set_result(None)
        await self.one_turn()

    async def one_turn(self) -> None:
        """Let what is asked be answered; no time passes."""
        for _ in range(20):
            await asyncio.sleep(0)

    def ends(self, name: str, **more: Any) -> None:
        """An attempt ends, and the page does not hear of it."""
        self.past.append(TOLD | {"name": name} | more)

    def hears_of_a_coordinator(self, instance: str) -> None:
        status = Status(state="online", session=instance, instance=instance, boot_id="b")
        topic = TOPICS.parse(TOPICS.coordinator_status())
        self.watcher._mirror.apply(topic, encode(status), NOW)
        self.hub.refresh()

    def looks(self) -> tuple[list[str], Callable[[], None]]:
        """Somebody opens the page: what is drawn there, and what closes it."""
        drawn = [one["name"] for one in self.attempts.rows]

        def on_told(told: Told) -> None:
            if told.afresh:
                drawn.clear()
            drawn.extend(one["name"] for one in told.attempts)

        return drawn, self.attempts.follow(on_told)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@played
async def test_many_browsers_cost_one_question_and_an_attempt_is_told_once(scene: Scene) -> None:
    scene.ends("old")
    first, _ = scene.looks()
    second, _ = scene.looks()
    await scene.one_turn()
    assert len(scene.asked) == 1
    for number in range(5):
        scene.ends(f"j{number}")
    await scene.time_passes()
    assert len(scene.asked) == 1 + 3, "three pages of two"
    third, _ = scene.looks()
    await scene.time_passes()
    assert first == second == third == ["old", *(f"j{number}" for number in range(5))]
    assert len(scene.asked) == 1 + 3 + 1


@played
async def test_nobody_looks_nobody_asks(scene: Scene) -> None:
    """Whoever comes back is told what was missed."""
    _, leave = scene.looks()
    await scene.one_turn()
    leave()
    scene.ends("job")
    for _ in range(3):
        await scene.time_passes()
    assert len(scene.asked) == 1
    drawn, _ = scene.looks()
    await scene.one_turn()
    assert drawn == ["job"]


@played
async def test_of_too_many_the_newest_are_drawn_and_the_rest_is_said() -> None:
    """Also when so many have ended since the last question that some were never told."""
    scene = Scene(most=4)
    attempts = scene.attempts
    for number in range(4):
        scene.ends(f"a{number}")
    drawn, _ = scene.looks()
    await scene.one_turn()
    assert (drawn, attempts.is_cut) == (["a0", "a1", "a2", "a3"], False)
    for number in range(9):
        scene.ends(f"b{number}")
    await scene.time_passes()
    assert drawn == [one["name"] for one in attempts.rows] == ["b5", "b6", "b7", "b8"]
    assert attempts.is_cut


@played
async def test_a_coordinator_that_does_not_tell_is_asked_again(scene: Scene) -> None:
    scene.ends("old")
    scene.fault = "no coordinator answered"
    drawn, _ = scene.looks()
    await scene.one_turn()
    assert (scene.attempts.fault, scene.attempts.known) == (scene.fault, False)
    scene.fault = ""
    await scene.time_passes()
    assert (scene.attempts.fault, scene.attempts.known, drawn) == ("", True, ["old"])


@played
async def test_another_coordinator_may_have_another_past(scene: Scene) -> None:
    scene.hears_of_a_coordinator("one")
    scene.ends("first")
    scene.ends("second")
    drawn, _ = scene.looks()
    await scene.one_turn()
    scene.past.clear()
    scene.ends("other")
    scene.hears_of_a_coordinator("two")
    await scene.time_passes()
    assert drawn == ["other"]


def test_a_bar_ends_with_its_trainer_and_not_with_the_word_of_it() -> None:
    one = attempt_of(TOLD)
    assert one is not None
    assert (one["finished"] - one["started"], one["started"]) == (60_000, 1_779_962_400_000)
    assert attempt_of(TOLD | {"s": None}) is None
