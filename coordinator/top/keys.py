"""The line of keys at the foot of the screen, of which only whole ones are shown."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

# Where not all fit, these stay: the help tells the others.
_STAYS: Final = frozenset({"help", "quit", "dismiss", "submit", "app.clear"})
_BLANKS: Final = 3  # around a key and its words
_COMPACT_BLANKS: Final = 2


class Keys(Footer):
    """As many keys as there is room for, the first ones first; of the way out and to help, all."""

    def compose(self) -> ComposeResult:
        """Keys, each whole."""
        keys = [one for one in super().compose() if isinstance(one, FooterKey)]
        room = self.size.width or self.app.size.width  # the first time its own is not known yet
        left = room - sum(_width(one) for one in keys if one.action in _STAYS)
        shown = []
        for one in keys:
            if one.action not in _STAYS:
                left -= _width(one)
            if one.action in _STAYS or left >= 0:
                shown.append(one)
        self.styles.grid_size_columns = len(shown)
        yield from shown

    def on_resize(self) -> None:
        """There may be room for more now, or for less."""
        self.refresh(recompose=True)


def _width(key: FooterKey) -> int:
    blanks = _COMPACT_BLANKS if key.compact else _BLANKS
    return cell_len(key.key_display) + cell_len(key.description) + blanks
