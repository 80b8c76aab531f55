"""The live view of a client, on a real fleet: what it shows follows what happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ConfigError
from broker.machine import new_id
from broker.messages import AskCancel, AskRequeue, AskShow, AskStatus
from broker.settings import BrokerSettings
from coordinator.live.mirror import Snapshot
from coordinator.live.watcher import AskedInVain, Watcher

DEADLINE_S = 30.0


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

    wait_for(lambda: watcher.snapshot().hosts["pi"].presence == "online", "the coordinator's word")
    agent.kill()
    wait_for(lambda: watcher.snapshot().hosts["pi"].presence == "crashed", "what became of it")

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
    with pytest.raises(AskedInVain, match="cancelled already"):
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


def test_nobody_waits_for_ever(watcher: Watcher) -> None:
    """Without a coordinator the one who asks is told at the deadline."""
    answer = watcher.ask(AskShow(id=new_id(), job="x"), timeout_s=0.3)
    with pytest.raises(AskedInVain, match=r"no coordinator answered|not connected"):
        answer.result(DEADLINE_S)
