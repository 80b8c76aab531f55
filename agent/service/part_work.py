"""Performs the core's effects on the parts that attempts need: found, fetched, installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from agent.core.effects import (
    Effect,
    FindPart,
    GiveUpFetch,
    InstallPart,
    Missing,
    Part,
    PartFound,
    ShellEvent,
    TaskOfAttempt,
    WriteFetched,
)
from agent.core.state import Run
from agent.programs.parts import Parts, in_use
from agent.service.disk_faults import fault_of, logged
from broker.clock import Now

_CALLED: Final = {
    Part.PROGRAM: "its program",
    Part.ENVIRONMENT: "its packages",
    Part.DATA: "its dataset",
    Part.INPUTS: "its input",
    Part.CHECKPOINT: "its checkpoint",
}
_Tried = Callable[[TaskOfAttempt, str, Callable[[], Any]], Any]


class PartWork:
    """Answers by `PartFound`, which `put` brings to the next turn.

    `background` has a slow function run elsewhere. `tried` returns the result of a function, or its
    exception, which it has logged.
    """

    def __init__(
        self,
        parts: Parts,
        put: Callable[[ShellEvent], object],
        background: Callable[[Callable[[], None]], object],
        tried: _Tried,
    ) -> None:
        """Nothing is to be done yet."""
        self._parts = parts
        self._put = put
        self._background = background
        self._tried = tried
        self._running: Mapping[str, Run] = {}
        self.by_kind: Mapping[type[Effect], Callable[[Any], object]] = {
            FindPart: self._find,
            InstallPart: self._install,
            WriteFetched: self._write,
            GiveUpFetch: self._give_up,
        }

    def turn(self, running: Mapping[str, Run]) -> None:
        """Learn what runs: what that uses is not deleted."""
        self._running = running

    def collect(self, now: Now) -> None:
        """Keep what may be used again within its limits."""
        used = self._used()

        def collect() -> None:
            with logged("programs and data"):
                self._parts.collect(used, now.wall_s)

        self._background(collect)

    def _find(self, task: FindPart) -> None:
        work = partial(self._answer, task, self._used())
        if task.part is Part.CHECKPOINT:
            work()  # a look at one file
        elif task.part is Part.ENVIRONMENT:
            self._parts.programs.building(work)
        else:
            self._background(work)

    def _install(self, task: InstallPart) -> None:
        self._background(partial(self._answer, task, self._used()))

    def _answer(self, task: FindPart | InstallPart, used: frozenset[str]) -> None:
        told: list[Missing] = []

        def early(missing: Missing) -> None:
            if not told:
                told.append(missing)
                self._put_found(task, missing)

        def work() -> Missing | None:
            if isinstance(task, InstallPart):
                self._parts.install(task.assign, task.part, task.artifact_id, early)
            return None if told else self._parts.find(task.assign, task.part, used)

        found = self._tried(task, _CALLED[task.part], work)
        if not told or isinstance(found, Exception):
            self._put_found(task, found)

    def _put_found(self, task: FindPart | InstallPart | WriteFetched, found: Any) -> None:
        key = (task.job_id, task.attempt, task.part)
        if isinstance(found, Exception):
            self._put(PartFound(*key, fault=fault_of(found)))
        elif not isinstance(task, WriteFetched):
            self._put(PartFound(*key, found))

    def _write(self, task: WriteFetched) -> None:
        write = self._parts.fetched()[task.part].write
        work = partial(write, task.job_id, task.attempt, task.offset, task.data)
        self._put_found(task, self._tried(task, _CALLED[task.part], work))

    def _give_up(self, task: GiveUpFetch) -> None:
        with logged("what was fetched"):
            for fetched in self._parts.fetched().values():
                fetched.give_up(task.job_id, task.attempt)

    def _used(self) -> frozenset[str]:
        return in_use([*self._running.values()])
