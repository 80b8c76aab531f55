"""The attempts that have ended, for the timeline: asked for once, whoever looks at it.

While a page is open, the coordinator is asked every few seconds for what is newer. So many browsers
cost one question, and an attempt is told once. Everything here belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.errors import FleetError
from broker.protocol.messages import AskAttempts, OperatorRequest
from broker.system.machine import new_id
from coordinator.client.rows import epoch_ms
from coordinator.web.hub import Hub, Listeners

MOST: Final = 3_000  # attempts that are kept, and drawn: a browser takes 0.1 s for so many
EVERY_S: Final = 2.0  # between two questions

Ask = Callable[[OperatorRequest], Awaitable[Any]]  # raises `FleetError`


class Attempt(NamedTuple):
    """One attempt that has ended; times in ms since the epoch, `end` as the coordinator says it."""

    job_id: str
    name: str
    attempt: int
    host: str
    began_ms: int
    ended_ms: int
    end: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a page is told: attempts, oldest first; `afresh`: in the place of all it knew."""

    attempts: list[Attempt]
    afresh: bool


class Attempts:
    """Keeps the newest attempts, oldest first, while somebody looks, and tells each page of them.

    `fault` says why they could not be asked for, empty when they could; `known`: they were, once.
    `is_cut`: earlier ones are left out.
    """

    def __init__(
        self, hub: Hub, ask: Ask, wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
        most: int = MOST,
    ) -> None:  # fmt: skip
        """Prepare; nothing is asked until somebody follows."""
        self.fault = ""
        self.known = False
        self.rows: deque[Attempt] = deque(maxlen=most)
        self.is_cut = False
        self._hub, self._ask_for, self._wait, self._most = hub, ask, wait, most
        self._newest = 0  # a place in the coordinator's table of events
        self._of = ""
        self._listeners = Listeners[Told]()
        self._task: asyncio.Task[None] | None = None

    def follow(self, listener: Callable[[Told], object]) -> Callable[[], None]:
        """Tell `listener` what is new from now on, and what fails; return what ends that."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self._listeners.add(listener)

    async def _run(self) -> None:
        while self._listeners:
            try:
                await self._ask()
            except FleetError as error:
                self.fault = str(error)
                self._listeners.tell(Told([], afresh=False))
            await self._wait(EVERY_S)

    async def _ask(self) -> None:
        status = self._hub.seen.coordinator
        of = status.instance if status is not None else ""
        # Another process may have been given another ledger, such as a backup.
        is_other = of != self._of
        after = 0 if is_other else self._newest
        found: list[Attempt] = []
        newest: int | None = None
        before: int | None = None
        while newest is None or (before is not None and len(found) <= self._most):
            page = await self._ask_for(AskAttempts(id=new_id(), after=after, before=before))
            found += [one for told in page["attempts"] if (one := attempt_of(told)) is not None]
            newest = page["newest"] if newest is None else newest
            before = page["next"]
        if is_other:
            self.rows.clear()
            self.is_cut = False
        self._of, self._newest = of, newest
        new = found[::-1]
        self.is_cut |= len(self.rows) + len(new) > self._most
        self.rows.extend(new)
        afresh = is_other or before is not None
        is_news = bool(new) or afresh or bool(self.fault) or not self.known
        self.fault, self.known = "", True
        if is_news:
            self._listeners.tell(Told(new[-self._most :], afresh))


def attempt_of(told: Mapping[str, Any]) -> Attempt | None:
    """Return an attempt as the coordinator tells it; none for one that never ran.

    It ended with its trainer, not when the coordinator knew.
    """
    ended_ms, began_ms = epoch_ms(told["at"]), epoch_ms(told["began"])
    if told["s"] is None or not told["host"] or ended_ms is None:
        return None
    ran_ms = round(told["s"] * 1000)
    if began_ms is not None:
        ended_ms = min(ended_ms, began_ms + ran_ms)
    return Attempt(
        told["job_id"], told["name"], told["attempt"], told["host"], ended_ms - ran_ms, ended_ms,
        told["end"],
    )  # fmt: skip
