"""The end of a job's output, which grows while the page is open."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from broker.errors import FleetError
from broker.protocol.messages import AskLogs
from broker.sentences import printable
from broker.system.machine import new_id
from coordinator.web.frame import Site, Visit
from coordinator.web.parts import Tag, call

POLL_S: Final = 2.0
LINES: Final = 300


class Tail:
    """The output of one job on one page. While `is_live`, it is asked for every two seconds."""

    def __init__(self, site: Site, visit: Visit, job_id: str) -> None:
        """Make its place."""
        self._site, self._visit, self._job_id = site, visit, job_id
        self._shown: list[str] = []
        self._asking = False
        self._asked_when_over = False
        self.is_live = True
        self._words = Tag("p", "asking the coordinator …", "note")
        self._place = Tag("pre", "", "log mono", role="log", tabindex="0", aria_label="Output")

    def start(self) -> None:
        """Begin to ask."""
        ui.timer(POLL_S, self._ask, immediate=True)

    async def _ask(self) -> None:
        if self._asking or (not self.is_live and self._asked_when_over):
            return
        self._asking = True
        over = not self.is_live
        try:
            answer = await self._site.hub.ask(AskLogs(id=new_id(), job=self._job_id, lines=LINES))
        except FleetError as error:
            self._say(str(error))
            return
        finally:
            self._asking = False
        self._asked_when_over = over
        if not self._visit.client.is_deleted:
            self._show(answer)

    def _show(self, answer: Any) -> None:
        lines = [printable(str(line))[:2_000] for line in answer.get("lines") or []]
        new = news_of(self._shown, lines)
        self._say("" if lines else "nothing yet" if self.is_live else "there is no output")
        if new is None:
            call(self._visit.client, "log", self._place.id, lines, True)
        elif new:
            call(self._visit.client, "log", self._place.id, new, False)
        self._shown = lines

    def _say(self, text: str) -> None:
        if self._words.text != text:
            self._words.set_text(text)


def news_of(before: list[str], now: list[str]) -> list[str] | None:
    """Return the lines that have come since, or none when `now` is another text altogether."""
    if not before:
        return now
    for start in range(len(before)):
        kept = len(before) - start
        if kept <= len(now) and before[start:] == now[:kept]:
            return now[kept:]
    return None
