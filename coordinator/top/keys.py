"""Keys act one after the other: each has had its effect before the next is looked at.

Textual hands each key to whatever has the focus when the key arrives. From there it goes up through
the queues of all widgets around, and may move the focus only at the end of that. Of keys that come
faster, as they do over a slow line, the later ones would act where the focus was before: the `c` of
`/cnn` would ask whether to cancel a job.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

# After so long a key is taken to be done: what had it may have left the screen.
KEY_S: Final = 1.0


class OneKeyAtATime(App[None]):
    """An app that keeps keys and what is pasted until what came before has had its effect."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._typed: deque[events.Key | events.Paste] = deque()  # the first is at work
        self._begun_s = 0.0

    async def on_event(self, event: events.Event) -> None:
        """Take an event; of what is typed, one after the other."""
        if event.is_forwarded or not isinstance(event, (events.Key, events.Paste)):
            await super().on_event(event)
            return
        self._typed.append(event)
        if len(self._typed) > 1 and time.monotonic() - self._begun_s > KEY_S:
            self._typed.popleft()
        elif len(self._typed) > 1:
            return
        await self._begin()

    async def _begin(self) -> None:
        self._begun_s = time.monotonic()
        event = self._typed[0]
        way = (self.focused or self.screen).ancestors_with_self
        await super().on_event(event)
        # Twice: a key may post a message, as Enter in a text does, which takes the same way.
        await self._follow(event, [*way, *way])

    async def _follow(self, event: events.Event, way: Sequence[MessagePump]) -> None:
        """Go the way of a key, behind it in each queue; at the end of it, the next key begins."""
        for index, node in enumerate(way):
            if node.call_later(self._follow, event, way[index + 1 :]):
                return
        if self._typed and self._typed[0] is event:
            self._typed.popleft()
            if self._typed:
                await self._begin()
