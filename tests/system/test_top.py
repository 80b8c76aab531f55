"""`fleet top` on real brokers and a real fleet, its keys pressed as a person would."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from broker.clock import Clock, Now
from broker.protocol.messages import Heartbeat, Status, Summary, encode
from broker.protocol.topics import Topics
from broker.system.machine import system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.watcher import Watcher
from coordinator.top.app import Top
from tests.harness.mirrored import told_row
from tests.harness.played import played
from tests.harness.verbs import verb

DEADLINE_S = 60.0


@contextlib.asynccontextmanager
async def _top(
    url: str, root: str, size: tuple[int, int] = (80, 24), clock: Clock = system_clock, **more: Any
) -> AsyncIterator[tuple[Top, Pilot[None]]]:
    watcher = Watcher(BrokerSettings(url=url, topic_root=root, **more), clock=clock)
    watcher.start()
    try:
        app = Top(watcher, every_s=0.2)
        async with app.run_test(size=size, notifications=True) as pilot:
            yield app, pilot
    finally:
        await asyncio.to_thread(watcher.stop)


def _screen(app: Top) -> str:
    """Everything that can be read on the screen now."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


async def _until(pilot: Pilot[None], holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end_s, f"waited for {what}:\n{_screen(pilot.app)}"  # type: ignore[arg-type] # it is a Top
        await pilot.pause(0.05)


async def _sees(app: Top, pilot: Pilot[None], text: str) -> None:
    await _until(pilot, lambda: text in _screen(app), f"{text!r} on the screen")


def _still() -> Now:
    """The time, for fleets without a coordinator: it is not missed, however long a test takes."""
    return Now(1000.0, 1.8e9)


class _Busy:
    """What a fleet of hosts and jobs would have published, on a real broker."""

    def __init__(self, client: Any, url: str, root: str) -> None:
        self.client, self.url, self.topics = client, url, Topics(root)

    def top(self, size: tuple[int, int] = (80, 24), **more: Any) -> Any:
        """`fleet top` of it."""
        return _top(self.url, self.topics.root, size, _still, **more)

    def says(self, topic: str, message: Any) -> None:
        self.client.publish(topic, encode(message), retain=True)

    def coordinator(self, state: Any = "online") -> None:
        status = Status(state=state, session="c", instance="c", boot_id="b")
        self.says(self.topics.coordinator_status(), status)

    def summary(self, *, paused: bool) -> None:
        self.says(self.topics.summary(), Summary(jobs={}, hosts={}, paused=paused))

    def host(self, name: str, cpu: float = 10.0) -> None:
        self.says(self.topics.status(name), Status(state="online", session="s", instance="i",
                                                   boot_id="b"))  # fmt: skip
        beat = Heartbeat(
            session="s", instance="i", seq=1, ram_available_bytes=2**30, cpu_percent=cpu
        )
        self.says(self.topics.heartbeat(name), beat)

    def job(self, number: int, state: Any = "pending", **more: Any) -> None:
        name = f"{('gbt', 'cnn', 'gru')[number % 3]}-{number:03}"
        row = told_row(name, state, job_id=f"{number:064x}", model=name[:3], **more)
        self.says(self.topics.job(row.job_id), row)


@pytest.fixture
def busy(client: Any, embedded_broker: Any, topic_root: str) -> _Busy:
    made = _Busy(
        client(embedded_broker.port, f"busy-{topic_root}"), embedded_broker.url, topic_root
    )
    made.coordinator()
    for number in range(12):
        made.host(f"pi-{number:02}", cpu=5.0 * number)
    for number in range(40):
        state = "running" if number < 3 else "failed" if number == 3 else "pending"
        made.job(number, state, host=f"pi-{number:02}" if number < 4 else None,
                 error="no memory" if number == 3 else None)  # fmt: skip
    return made


def _fits(screen: str, size: tuple[int, int]) -> bool:
    lines = screen.splitlines()
    return (
        (len(lines[0]), len(lines)) == size
        and "hosts 12 online  jobs 3 running 36 pending" in lines[1]
        and ("1 failed" in lines[1] or "…" in lines[1])
        and "online" in lines[0]
        and "Hosts 12 · by name" in lines[2]
        and any("pi-00" in line and "online" in line for line in lines[4:])
        and any("Jobs 40 · by activity" in line for line in lines)
        and any("gbt-000" in line and "running" in line for line in lines)
        and ("Quit" if size[0] < 80 else "p Programs") in lines[-1]
    )


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (160, 50)], ids=["60x24", "80x24", "160x50"])
@played
async def test_hosts_and_jobs_fit_the_window(busy: _Busy, size: tuple[int, int]) -> None:
    async with busy.top(size) as (app, pilot):
        for window in (size, (240 - size[0], 74 - size[1])):
            await pilot.resize_terminal(*window)
            await _until(pilot, lambda size=window: _fits(_screen(app), size), f"{window}")  # type: ignore[misc] # bound now


@played
async def test_what_keeps_the_fleet_from_going_on_is_seen_while_it_lasts(busy: _Busy) -> None:
    async with busy.top((60, 24)) as (app, pilot):
        busy.summary(paused=True)
        await _sees(app, pilot, "PAUSED: no new jobs begin; `fleet pause --off` lifts it")
        busy.summary(paused=False)
        await _until(pilot, lambda: "PAUSED" not in _screen(app), "the fleet goes on")
        await asyncio.to_thread(busy.coordinator, "offline")
        await _sees(app, pilot, "The coordinator is gone")
        await asyncio.to_thread(busy.coordinator)
        await _until(pilot, lambda: "is gone" not in _screen(app), "all is well")


@pytest.mark.parametrize("size", [(60, 20), (34, 12)], ids=["60x20", "34x12"])
@played
async def test_the_way_out_is_always_seen(busy: _Busy, size: tuple[int, int]) -> None:
    async with busy.top(size) as (app, pilot):
        await _sees(app, pilot, "Jobs 40")
        await _sees(app, pilot, "? Help q Quit")
        await pilot.press("slash")
        await _sees(app, pilot, "\n⏎ Keep it esc All again ")
        assert "/ Find" not in _screen(app), "it would be part of the text"
        await pilot.press("escape", "enter")
        await _sees(app, pilot, "esc Close  c Cancel  ")
        await pilot.press("escape", "question_mark")
        await _sees(app, pilot, "Escape closes it")
        await pilot.press("escape", "c")
        await _sees(app, pilot, "Cancel it (y)")


@played
async def test_keys_find_what_one_looks_for(busy: _Busy) -> None:
    async with busy.top() as (app, pilot):
        await _sees(app, pilot, "Jobs 40 · by activity")
        await pilot.press("slash", *"cnn", "enter")
        await _sees(app, pilot, "Jobs 13 of 40 · with “cnn” · by activity")
        assert "gru-005" not in _screen(app)
        await pilot.press("escape", "f", "f", "f")
        await _sees(app, pilot, "Jobs 1 of 40 · only failed · by activity")
        assert "no memory" in _screen(app)
        await pilot.press("escape", "s")
        await _sees(app, pilot, "Jobs 40 · by name")
        await pilot.press("tab", "s")
        await _sees(app, pilot, "Hosts 12 · by use")
        await _until(pilot, lambda: app.hosts.shown[0]["id"] == "pi-11", "what all hosts use")
        await pilot.press("question_mark")
        await _sees(app, pilot, "drain the host")
        await pilot.press("escape", "tab", "slash", *"xyz", "enter", "c")
        await _sees(app, pilot, "no job is selected; Escape shows")
        await pilot.press("q")
        await _until(pilot, lambda: not app.is_running, "the end")


@played
async def test_keys_that_come_at_once_act_one_after_the_other(busy: _Busy) -> None:
    async with busy.top() as (app, pilot):
        await _sees(app, pilot, "Jobs 40")
        for key in ("slash", *"cnn", "enter", "down", "s", "enter", "3", "c"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await _sees(app, pilot, "Cancel cnn-004?")
        assert (app.jobs.text, app.jobs.order) == ("cnn", "name")


@played
async def test_the_selection_stays_with_its_job(busy: _Busy) -> None:
    async with busy.top() as (app, pilot):
        await _sees(app, pilot, "Jobs 40")
        await pilot.press(*["down"] * 4)
        await _until(pilot, lambda: app.jobs.cursor_row == 4, "the fifth job is selected")
        chosen = app.jobs.selected
        assert chosen is not None
        await asyncio.to_thread(busy.job, 39, "running", host="pi-05")
        await asyncio.to_thread(busy.job, 0, "completed", finished_at="2026-01-02T13:00:00Z")
        await asyncio.to_thread(busy.job, 1, "completed", finished_at="2026-01-02T13:00:00Z")
        await _sees(app, pilot, "2 running 35 pending 1 failed 2 completed")
        assert app.jobs.selected["id"] == chosen["id"]
        assert app.jobs.cursor_row == 3
        await pilot.press("end")
        await _sees(app, pilot, "gbt-000")
        assert app.jobs.selected["id"] != chosen["id"]


@pytest.mark.slow
@played
async def test_keys_change_a_real_fleet(fleet: Any, long: str) -> None:
    fleet.plan(long)
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "running")

    async with _top(fleet.broker_url, fleet.root, (120, 40)) as (app, pilot):
        await _sees(app, pilot, "gbt-oracle")
        await pilot.press("enter")
        await _sees(app, pilot, "started")
        await pilot.press("2")
        await _sees(app, pilot, "epoch")
        await pilot.press("3")
        await _sees(app, pilot, "it is running on pi")
        await pilot.press("escape", "c")
        await _sees(app, pilot, "Cancel gbt-oracle? It is running on pi.")
        await pilot.press("n")
        await pilot.press("c")
        await _sees(app, pilot, "Cancel gbt-oracle?")
        await pilot.press("y")
        await _sees(app, pilot, "gbt-oracle is cancelled")
        assert (await asyncio.to_thread(fleet.until, "gbt-oracle", "cancelled"))["host"] == "pi"
        await pilot.press("c", "y")
        await _sees(app, pilot, "job gbt-oracle is cancelled already")
        await pilot.press("tab", "d")
        await _sees(app, pilot, "Drain pi?")
        await pilot.press("y")
        await _sees(app, pilot, "drained by operator:")
        await pilot.press("d")
        await _sees(app, pilot, "Give pi jobs again?")
        await pilot.press("y")
        await _sees(app, pilot, "pi is given jobs again")
        await pilot.press("tab", "r")
        await _sees(app, pilot, "Requeue gbt-oracle?")
        await pilot.press("y")
        await _sees(app, pilot, "is in the queue again")
    assert fleet.events("gbt-oracle").count("cancelled") == 1
    assert "requeued" in fleet.events("gbt-oracle")


@pytest.mark.slow
@played
async def test_programs_and_datasets_have_a_window(fleet: Any, tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "one.txt").write_text("one", "utf-8")
    fleet.coordinator()
    push = ("data", "push", "digits", str(tmp_path / "digits"))
    title = (await asyncio.to_thread(verb, *push, environment=fleet.environment)).text()

    async with _top(fleet.broker_url, fleet.root) as (app, pilot):
        await pilot.press("p")
        await _sees(app, pilot, "no programs; `fleet push DIR` sends one")
        await pilot.press("2")
        await _sees(app, pilot, title[: len("digits@") + 12])
        await pilot.press("escape")
        await _sees(app, pilot, "Jobs 0")


@pytest.mark.slow
@played
async def test_a_window_says_that_no_coordinator_answers(fleet: Any) -> None:
    async with _top(fleet.broker_url, fleet.root) as (app, pilot):
        await pilot.press("p")
        await _sees(app, pilot, "No coordinator has been heard")


@played
async def test_an_error_is_told_with_the_section_of_the_file_that_it_names(
    busy: _Busy, tmp_path: Path
) -> None:
    key = {"operator_key_file": tmp_path / "none"}

    async with busy.top((160, 50), **key) as (app, pilot):
        await _sees(app, pilot, "Jobs 40")
        await pilot.press("c", "y")
        await _sees(app, pilot, "Not done")
        assert "[broker]" in _screen(app)
