"""The live view of a client, on a real fleet: what it shows follows what happens."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.clock import Now
from broker.errors import ConfigError
from broker.protocol.messages import AskCancel, AskRequeue, AskShow, AskStatus
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.contact import SILENT_S, NotDone
from coordinator.client.seen import Snapshot
from coordinator.client.watcher import Watcher
from tests.harness.brokers import BrokerProcess

DEADLINE_S = 60.0


@pytest.fixture
def watcher(fleet: Any) -> Iterator[Watcher]:
    """A live view of the fleet, begun before anything runs."""
    made = Watcher(BrokerSettings(url=fleet.broker_url, topic_root=fleet.root))
    made.start()
    yield made
    made.stop()


def _states(snapshot: Snapshot) -> dict[str, str]:
    return {row.name: row.state for row in snapshot.jobs.values()}


def _losses(watcher: Watcher) -> int:
    return max((len(curve.points) for curve in watcher.snapshot().curves.values()), default=0)


def test_jobs_hosts_and_losses_are_followed(
    fleet: Any, watcher: Watcher, long: str, wait_for: Callable[..., None]
) -> None:
    """From the first message on; a coordinator that starts later is met, and so is its restart."""
    fleet.plan(long)
    coordinator = fleet.coordinator()
    agent = fleet.agent()
    wait_for(lambda: _losses(watcher) > 2, "a curve of the losses")
    seen = watcher.snapshot()
    assert _states(seen) == {"gbt-oracle": "running"}
    assert seen.hosts["pi"].online
    assert seen.hosts["pi"].capability is not None
    epochs = [point.epoch for point in next(iter(seen.curves.values())).points]
    assert epochs == sorted({*epochs})

    wait_for(lambda: watcher.snapshot().hosts["pi"].condition == "online", "the coordinator's word")
    agent.kill()
    wait_for(lambda: watcher.snapshot().hosts["pi"].condition == "cut-off", "what became of it")

    coordinator.kill()
    wait_for(
        lambda: (seen := watcher.snapshot().coordinator) is not None and seen.state == "offline",
        "the coordinator's will",
    )
    fleet.plan(long, long.replace('"oracle"', '"realistic"'))
    fleet.coordinator()
    wait_for(lambda: len(watcher.snapshot().jobs) == 2, "the new plan's jobs")


def test_many_may_ask_over_one_connection(fleet: Any, watcher: Watcher, short: str) -> None:
    """Each gets the answer to its own question, refusals with the coordinator's words."""
    fleet.plan(short, short.replace('"oracle"', '"realistic"'))
    fleet.coordinator()
    asked = [
        watcher.ask(AskShow(id=new_id(), job=f"gbt-{mode}")) for mode in ("oracle", "realistic")
    ]
    assert [one.result(DEADLINE_S)["name"] for one in asked] == ["gbt-oracle", "gbt-realistic"]

    watcher.ask(AskCancel(id=new_id(), job="gbt-oracle")).result(DEADLINE_S)
    with pytest.raises(NotDone, match="cancelled already"):
        watcher.ask(AskCancel(id=new_id(), job="gbt-oracle")).result(DEADLINE_S)
    watcher.ask(AskRequeue(id=new_id(), job="gbt-oracle")).result(DEADLINE_S)


def test_whoever_gives_up_does_not_end_the_view(
    fleet: Any, watcher: Watcher, short: str, wait_for: Callable[..., None]
) -> None:
    """A window that was closed meanwhile takes no answer; others are answered as before."""
    fleet.plan(short)
    request = AskShow(id=new_id(), job="gbt-oracle")
    assert watcher.ask(request, timeout_s=3 * DEADLINE_S).cancel()
    fleet.coordinator()
    wait_for(lambda: request.id not in watcher._asked, "the answer that nobody wants")
    asked = watcher.ask(AskShow(id=new_id(), job="gbt-oracle"), timeout_s=DEADLINE_S)
    assert asked.result(DEADLINE_S)["name"] == "gbt-oracle"


def test_a_key_that_cannot_be_read_is_told_to_who_asks(fleet: Any, tmp_path: Path) -> None:
    """And to nobody else: what needs no key is answered."""
    fleet.coordinator()
    settings = BrokerSettings(
        url=fleet.broker_url, topic_root=fleet.root, operator_key_file=tmp_path / "gone"
    )
    watcher = Watcher(settings)
    watcher.start()
    try:
        with pytest.raises(ConfigError, match="gone: the operator key cannot be read"):
            watcher.ask(AskCancel(id=new_id(), job="x"))
        status = watcher.ask(AskStatus(id=new_id()), timeout_s=DEADLINE_S).result(DEADLINE_S)
        assert status["signed"] is False
    finally:
        watcher.stop()


def test_a_coordinator_that_is_silent_after_a_reconnect_is_told_from_one_that_is_asked_first(
    new_broker: Callable[[str], BrokerProcess], wait_for: Callable[..., None]
) -> None:
    """What was asked on the old connection is asked on the new one: the silence begins there."""
    ahead_s = [0.0]

    def clock() -> Now:
        now = system_clock()
        return Now(now.mono_s + ahead_s[0], now.wall_s + ahead_s[0])

    broker = new_broker("embedded")
    watcher = Watcher(BrokerSettings(url=broker.url), clock=clock)
    watcher.start()
    try:
        wait_for(lambda: _missing(watcher) == "first", "the connection")
        broker.end(signal.SIGKILL)
        wait_for(lambda: _missing(watcher) == "broker", "a broker that is gone")
        broker.start()
        wait_for(lambda: _missing(watcher) == "first", "the connection")
        ahead_s[0] = SILENT_S
        wait_for(lambda: _missing(watcher) == "answer", "that nobody answers")
    finally:
        watcher.stop()


def _missing(watcher: Watcher) -> str:
    return "" if watcher.outage is None else watcher.outage.what
