"""The attempts that the timeline draws: asked for once, told once, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.clock import Now
from broker.protocol.messages import AskAttempts, JobRow, Status, encode
from broker.protocol.topics import Topics
from broker.system.settings import BrokerSettings
from coordinator.client.contact import NotDone
from coordinator.client.watcher import Watcher
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import AttemptFilter
from coordinator.jobs.states import Event
from coordinator.ledger.ledger import Ledger
from coordinator.web.attempt_rows import Attempts, Told, _attempt, _Told, may_end
from coordinator.web.hub import Hub
from coordinator.web.pages.timeline_page import runs_of
from tests.unit.coordinator.ledger.test_attempts import Past

TOPICS = Topics()
NOW = Now(1.0, 1_000_000.0)


class Scene:
    """A ledger that answers what is asked, a hub that hears of jobs, and a time that is ours."""

    def __init__(self, most: int = 100) -> None:
        self.past = Past()
        self.watcher = Watcher(BrokerSettings(), clock=lambda: NOW)
        self.hub = Hub(self.watcher, lambda: NOW)
        self.asked: list[AskAttempts] = []
        self.fault = ""
        self.attempts = Attempts(self.hub, self.ask, self.wait, most)
        self._waits: list[asyncio.Future[None]] = []
        self._is_paused = True

    async def ask(self, request: Any) -> Any:
        """The coordinator answers, unless it is at fault; a page is small."""
        self.asked.append(request)
        if self.fault:
            raise NotDone(self.fault)
        wanted = AttemptFilter(before=request.before, after=request.after, limit=2)
        return self.past.ledger.attempts(wanted)

    async def wait(self, _: float) -> None:
        """Until the test says that the time is over."""
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.append(waits)
        await waits

    async def settle(self) -> None:
        """Let the time between two questions be over, until nothing more is asked."""
        for _ in range(50):
            for one in self._waits:
                if not one.done():
                    one.set_result(None)
            await asyncio.sleep(0)

    async def one_turn(self) -> None:
        """Let what is asked be answered; no time passes."""
        for _ in range(20):
            await asyncio.sleep(0)

    def hears(self, job: Job) -> None:
        """The page hears of a job as it is now."""
        row: JobRow = job.row()
        self.watcher._mirror.apply(TOPICS.parse(TOPICS.job(row.job_id)), encode(row), NOW)
        self.hub.refresh()

    def hears_of_a_coordinator(self, instance: str) -> None:
        """Another process serves the fleet."""
        status = Status(state="online", session=instance, instance=instance, boot_id="b")
        topic = TOPICS.parse(TOPICS.coordinator_status())
        self.watcher._mirror.apply(topic, encode(status), NOW)
        self.hub.refresh()

    def looks(self) -> tuple[list[str], Callable[[], None]]:
        """Somebody opens the page: what is drawn there, and what closes it."""
        drawn = [_said(one) for one in runs_of(self.attempts.rows)]

        def on_told(told: Told) -> None:
            if told.afresh:
                drawn.clear()
            drawn.extend(_said(one) for one in runs_of(told.attempts))

        return drawn, self.attempts.follow(on_told)


def _said(run: list[Any]) -> str:
    _, name, attempts = run
    ends = ", ".join(f"{number} {end} on {host} in {(to - began) / 1000:g} s"
                     for number, host, began, to, end in attempts)  # fmt: skip
    return f"{name}: {ends}"


def _run(story: Callable[[Scene], Coroutine[Any, Any, None]], most: int = 100) -> None:
    scene = Scene(most)
    asyncio.run(story(scene))
    scene.past.ledger.close()


def test_every_attempt_of_a_job_is_drawn_by_how_it_ended() -> None:
    """On its own host; what never ran has no bar."""

    async def story(scene: Scene) -> None:
        past = scene.past
        job = past.then(past.begins(past.add(), "a"), Event.LOST, 10.0)
        job = past.then(past.begins(job, "b"), Event.RETRIED, 20.0, host=None)
        job = past.then(past.begins(job, "c"), Event.RELEASED, 5.0, host=None)
        job = past.then(job, Event.ASSIGNED, host="d", attempt=4)
        past.then(job, Event.REFUSED, host=None)
        drawn, _ = scene.looks()
        await scene.settle()
        assert runs_of(scene.attempts.rows)[0][0] == job.job_id
        assert [word for said in drawn for word in said.split(": ")[1].split(", ")] == [
            "1 lost on a in 10 s", "2 failed on b in 20 s", "3 released on c in 5 s",
        ]  # fmt: skip

    _run(story)


def test_many_browsers_cost_one_question_and_an_attempt_is_told_once() -> None:
    """Each of them draws it."""

    async def story(scene: Scene) -> None:
        past = scene.past
        past.completes(past.begins(past.add("old")), 10.0)
        first, _ = scene.looks()
        second, _ = scene.looks()
        await scene.settle()
        assert (len(scene.asked), first) == (1, second)
        job = past.begins(past.add("new"))
        scene.hears(job)
        await scene.settle()
        assert len(scene.asked) == 1, "nothing has ended"
        scene.hears(past.completes(job, 7.0))
        await scene.settle()
        third, _ = scene.looks()
        await scene.settle()
        want = ["old: 1 completed on pi in 10 s", "new: 1 completed on pi in 7 s"]
        assert first == second == third == want
        assert [one.after > 0 for one in scene.asked] == [False, True]

    _run(story)


def test_attempts_that_end_close_together_are_asked_for_together() -> None:
    """However many, the coordinator is asked once in a while."""

    async def story(scene: Scene) -> None:
        drawn, _ = scene.looks()
        await scene.one_turn()
        past = scene.past
        for number in range(5):
            job = past.begins(past.add(f"j{number}"))
            scene.hears(job)
            scene.hears(past.completes(job, 1.0))
            await scene.one_turn()
        assert len(scene.asked) == 1
        await scene.settle()
        assert len(drawn) == 5
        assert len(scene.asked) == 1 + 3, "three pages of two"

    _run(story)


def test_nobody_looks_nobody_asks() -> None:
    """Whoever comes back is told what was missed."""

    async def story(scene: Scene) -> None:
        past = scene.past
        _, leave = scene.looks()
        await scene.settle()
        leave()
        job = past.begins(past.add())
        scene.hears(job)
        scene.hears(past.completes(job, 3.0))
        await scene.settle()
        assert len(scene.asked) == 1
        drawn, _ = scene.looks()
        await scene.settle()
        assert drawn == ["job: 1 completed on pi in 3 s"]

    _run(story)


def test_of_too_many_the_newest_are_drawn_and_the_rest_is_said() -> None:
    """Also when so many have ended since the last question that some were never told."""

    async def story(scene: Scene) -> None:
        past, attempts = scene.past, scene.attempts
        for number in range(4):
            past.completes(past.begins(past.add(f"a{number}")), 1.0)
        scene.looks()
        await scene.settle()
        assert ([one.name for one in attempts.rows], attempts.left_out_ms) == (
            ["a0", "a1", "a2", "a3"], None,
        )  # fmt: skip
        for number in range(9):
            job = past.completes(past.begins(past.add(f"b{number}")), 1.0)
        scene.hears(job)
        await scene.settle()
        assert [one.name for one in attempts.rows] == ["b5", "b6", "b7", "b8"]
        assert attempts.left_out_ms == attempts.rows[0].ended_ms
        again, _ = scene.looks()
        assert len(again) == 4

    _run(story, most=4)


def test_a_coordinator_that_does_not_tell_is_asked_again() -> None:
    """Meanwhile the pages say so, and keep what they know."""

    async def story(scene: Scene) -> None:
        past = scene.past
        past.completes(past.begins(past.add("old")), 10.0)
        scene.fault = "no coordinator answered"
        drawn, _ = scene.looks()
        await scene.one_turn()
        assert (scene.attempts.fault, scene.attempts.known) == (scene.fault, False)
        scene.fault = ""
        await scene.settle()
        assert (scene.attempts.fault, scene.attempts.known) == ("", True)
        assert drawn == ["old: 1 completed on pi in 10 s"]

    _run(story)


def test_another_coordinator_may_have_another_past() -> None:
    """It may have been given a backup: all that was known is asked for anew."""

    async def story(scene: Scene) -> None:
        scene.hears_of_a_coordinator("one")
        for name in ("first", "second"):
            scene.past.completes(scene.past.begins(scene.past.add(name)), 10.0)
        drawn, _ = scene.looks()
        await scene.settle()
        scene.past.ledger.close()
        scene.past.ledger, scene.past.book = Ledger(":memory:"), type(scene.past.book)()
        scene.past.completes(scene.past.begins(scene.past.add("other")), 4.0)
        scene.hears_of_a_coordinator("two")
        await scene.settle()
        assert drawn == ["other: 1 completed on pi in 4 s"]

    _run(story)


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        (("pending", 0), ("claimed", 1), False),
        (("claimed", 1), ("running", 1), False),
        (("running", 1), ("running", 1), False),
        (("completed", 1), ("claimed", 2), False),
        (("running", 1), ("completed", 1), True),
        (("running", 1), ("pending", 1), True),
        (("running", 1), ("claimed", 2), True),
        (("pending", 0), ("completed", 1), True),
        (("pending", 1), ("running", 3), True),
    ],
)
def test_a_question_is_asked_when_an_attempt_may_have_ended(
    before: tuple[str, int], after: tuple[str, int], ends: bool
) -> None:
    """And not whenever a job begins, or gets on."""
    assert may_end(before, after) is ends


def test_a_bar_ends_with_its_trainer_and_not_with_the_word_of_it() -> None:
    """It ran for a minute, and its host was away for nine more."""
    told = {"job_id": "a", "name": "a", "attempt": 1, "host": "pi", "end": "completed", "s": 60.0}
    at = {"began": "2026-05-28T10:00:00Z", "at": "2026-05-28T10:10:00Z"}
    one = _attempt(_Told.model_validate(told | at))
    assert one is not None
    assert (one.ended_ms - one.began_ms, one.began_ms) == (60_000, 1_779_962_400_000)
