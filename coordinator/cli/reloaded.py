"""What a reload changes beside the jobs, as `fleet plan` announces and `fleet reload` tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from coordinator.cli import outlook, render
from coordinator.diff import changes_in_words

if TYPE_CHECKING:
    from coordinator.diff import Change


def tell(out: Any, hosts: Mapping[str, Iterable[Change]], settings: Iterable[Change]) -> None:
    """Print a line for each host whose policy is changed, and for each setting of the plan."""
    for change in settings:
        _say(out, change[0], f"{changes_in_words([change]).removeprefix(f'{change[0]} ')}")
    for name, changes in hosts.items():
        _say(out, f"[hosts.{name}]", changes_in_words(changes))


def _say(out: Any, what: str, words: str) -> None:
    line = render.Text().append("~ ", "yellow").append(render.printable(what), "bold")
    outlook.say(out, line.append(f"  {render.printable(words)}"), 2, hang=2)
