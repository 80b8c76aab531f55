"""Things for a terminal: a view that fills the window, the figures beside a bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress import ProgressColumn, Task
from rich.segment import Segment
from rich.text import Text

from broker.sentences import span
from coordinator.ui.words import size


@dataclass(frozen=True, slots=True)
class Window:
    """A line on top with what it is and how it stands (`words`, in a style), then the parts."""

    title: str
    words: str
    style: str
    parts: Sequence[RenderableType]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield as many lines as fit, and how many do not."""
        head = Text(self.title, "bold")
        head.append(f"  {self.words}", self.style)
        yield head
        yield Text()
        inner = options.update(height=None)
        lines = console.render_lines(Group(*self.parts), inner, pad=False)
        taken = len(console.render_lines(head, inner, pad=False)) + 1
        room = max(1, (options.height or console.height) - taken)
        shown = lines if len(lines) <= room else lines[: room - 1]
        for line in shown:
            yield from line
            yield Segment.line()
        if more := len(lines) - len(shown):
            yield Text(f"… {more} more lines; a higher window shows them", "dim", no_wrap=True)


class Figures(ProgressColumn):
    """How much of a transfer is done, how fast it goes, and how long it will take."""

    def render(self, task: Task) -> Text:
        """Return it in the units that all of the command line has."""
        said = f"{size(task.completed)} of {size(task.total)}"
        if task.speed:
            said += f", {size(task.speed)}/s"
        if task.time_remaining is not None:
            said += f", {span(task.time_remaining)} left"
        return Text(said)
