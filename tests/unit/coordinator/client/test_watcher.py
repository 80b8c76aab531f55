"""A client's live view of a fleet, on a real broker."""

from __future__ import annotations

from typing import Any

from broker.protocol.link_events import Outgoing
from broker.protocol.messages import AskShow
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from coordinator.client.watcher import Watcher
from tests.harness.peer import DEADLINE_S


def test_whoever_gives_up_does_not_end_the_view(
    where: BrokerSettings, peer: Any, says: Any
) -> None:  # fmt: skip
    """A window that was closed meanwhile takes no answer; others are answered as before."""
    closed, open_ = (AskShow(id=new_id(), job=job) for job in ("closed", "open"))

    def answer(ask: Any, client: str) -> list[Outgoing]:
        is_late = getattr(ask, "job", "") == "open"
        return [says(client, one.id, one.job) for one in (closed, open_) if is_late]

    peer(answer)
    watcher = Watcher(where)
    watcher.timeout_s = DEADLINE_S
    watcher.start()
    try:
        assert watcher.send(closed).cancel()
        assert watcher.send(open_).result(DEADLINE_S) == "open"
    finally:
        watcher.stop()
