"""The attempts that have ended, for the timeline: asked for once, whoever looks at it.

The coordinator is asked when the first page is opened, and as long as one is open again for what is
newer, when a job has moved in a way that ends an attempt. So many browsers cost one question, and
an attempt is told once. Everything here belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from broker.errors import FleetError, RemoteError
from broker.protocol.messages import AskAttempts, OperatorRequest
from broker.system.machine import new_id
from coordinator.web.hub import Hub, News
from coordinator.web.rows import HELD, Row

MOST: Final = 3_000  # attempts that are kept, and drawn: a browser takes 0.1 s for so many
GAP_S: Final = 1.0  # between two questions, however many attempts end
AGAIN_S: Final = 10.0  # after one that nobody has answered


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that has ended; times in ms since the epoch, `end` as the coordinator says it."""

    job_id: str
    name: str
    attempt: int
    host: str
    began_ms: int
    ended_ms: int
    end: str


class _Told(BaseModel):
    """An attempt as the coordinator tells it."""

    model_config = ConfigDict(extra="ignore")

    job_id: str
    name: str
    attempt: int
    host: str | None
    at: datetime
    end: str
    began: datetime | None
    s: float | None


class _Page(BaseModel):
    model_config = ConfigDict(extra="ignore")

    attempts: list[_Told]
    next: int | None
    newest: int


@dataclass(slots=True)
class Kept:
    """The newest attempts, oldest first, at most `most` of them.

    `newest` is a place in the coordinator's table of events; `left_out_ms`: some that ended before
    that are left out.
    """

    most: int = MOST
    rows: deque[Attempt] = field(default_factory=deque)
    newest: int = 0
    left_out_ms: int | None = None

    def take(self, found: Iterable[Attempt], newest: int) -> list[Attempt]:
        """Add what is new, newest first; return as much of it as is kept, oldest first."""
        new = list(found)[::-1]
        self.rows.extend(new)
        self.newest = newest
        is_cut = self.left_out_ms is not None or len(self.rows) > self.most
        while len(self.rows) > self.most:
            self.rows.popleft()
        if is_cut:
            self.left_out_ms = self.rows[0].ended_ms
        return new[-self.most :]


@dataclass(frozen=True, slots=True)
class Told:
    """What a page is told: attempts, oldest first; `afresh`: in the place of all it knew."""

    attempts: list[Attempt]
    afresh: bool


Listener = Callable[[Told], object]


Ask = Callable[[OperatorRequest], Awaitable[Any]]  # raises `FleetError`


class Attempts:
    """Keeps the newest attempts while somebody looks, and tells each page of them.

    `fault` says why they could not be asked for, empty when they could; `known`: they were, once.
    """

    def __init__(
        self,
        hub: Hub,
        ask: Ask,
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
        most: int = MOST,
    ) -> None:
        """Prepare; nothing is asked until somebody follows."""
        self.fault = ""
        self.known = False
        self._hub, self._put = hub, ask
        self._wait = wait
        self._most = most
        self._kept = Kept(most)
        self._listeners: dict[int, Listener] = {}
        self._next = 0
        self._of = ""
        self._marks: dict[str, Mark] = {}
        self._due = False
        self._task: asyncio.Task[None] | None = None
        self._end: Callable[[], None] | None = None

    @property
    def rows(self) -> list[Attempt]:
        """What is known, oldest first."""
        return list(self._kept.rows)

    @property
    def left_out_ms(self) -> int | None:
        """Attempts that ended before this may be left out; none: all are there."""
        return self._kept.left_out_ms

    def follow(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` what is new from now on, and what fails; return what ends that."""
        key = self._next
        self._next += 1
        self._listeners[key] = listener
        if self._end is None:
            self._end = self._hub.follow(self._on_news)
            self._marks = {key: mark(row) for key, row in self._hub.tables.jobs.rows.items()}
            self._look()
        return lambda: self._leave(key)

    def _leave(self, key: int) -> None:
        self._listeners.pop(key, None)
        if not self._listeners and self._end is not None:
            self._end()
            self._end = None

    def _on_news(self, news: News) -> None:
        ends = self._of != self._coordinator()
        for row in (*news.jobs.add, *news.jobs.update):
            now = mark(row)
            ends |= may_end(self._marks.get(row["id"], NEW), now)
            self._marks[row["id"]] = now
        for key in news.jobs.remove:
            self._marks.pop(key, None)
        if ends:
            self._look()

    def _look(self) -> None:
        self._due = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._due and self._listeners:
            self._due = False
            try:
                await self._ask()
            except FleetError as error:
                self._due = True
                self.fault = str(error)
                self._tell(Told([], afresh=False))
                await self._wait(AGAIN_S)
            else:
                await self._wait(GAP_S)

    async def _ask(self) -> None:
        of = self._coordinator()
        # Another process may have been given another ledger, such as a backup.
        kept = self._kept if of == self._of else Kept(self._most)
        found: list[Attempt] = []
        newest: int | None = None
        before: int | None = None
        while newest is None or (before is not None and len(found) <= self._most):
            page = await self._page(kept.newest, before)
            found += [one for told in page.attempts if (one := _attempt(told)) is not None]
            newest = page.newest if newest is None else newest
            before = page.next
        new = kept.take(found, newest)
        afresh = kept is not self._kept or before is not None
        self._kept, self._of = kept, of
        is_news = bool(new) or afresh or bool(self.fault) or not self.known
        self.fault, self.known = "", True
        if is_news:
            self._tell(Told(new, afresh))

    async def _page(self, after: int, before: int | None) -> _Page:
        answer = await self._put(AskAttempts(id=new_id(), after=after, before=before))
        try:
            return _Page.model_validate(answer)
        except ValidationError:
            what = "the answer makes no sense; is the coordinator of this version?"
            raise RemoteError(what) from None

    def _coordinator(self) -> str:
        """Return which process the coordinator is, as far as it is known."""
        status = self._hub.seen.coordinator
        return status.instance if status is not None else ""

    def _tell(self, told: Told) -> None:
        for listener in list(self._listeners.values()):
            listener(told)


Mark = tuple[str, int]  # the state of a job, and its newest attempt
NEW: Final[Mark] = ("pending", 0)


def mark(row: Row) -> Mark:
    """Return of a job what tells whether an attempt of it has ended."""
    return row["state"], row["attempt"]


def may_end(before: Mark, after: Mark) -> bool:
    """Whether an attempt may have ended between two looks at a job."""
    if before == after:
        return False
    is_held, was_held = after[0] in HELD, before[0] in HELD
    return not is_held or after[1] > before[1] + (not was_held)


def _attempt(told: _Told) -> Attempt | None:
    """Return an attempt; none for one that never ran, or ran no more when it ended.

    It ended with its trainer, not when the coordinator knew.
    """
    if told.s is None or not told.host:
        return None
    ran_ms = round(told.s * 1000)
    ended_ms = round(told.at.timestamp() * 1000)
    if told.began is not None:
        ended_ms = min(ended_ms, round(told.began.timestamp() * 1000) + ran_ms)
    began_ms = ended_ms - ran_ms
    return Attempt(
        told.job_id, told.name, told.attempt, told.host, began_ms, ended_ms, told.end
    )  # fmt: skip
