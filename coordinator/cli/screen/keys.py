"""The line of keys at the foot of the screen, of which only whole ones are shown."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

# Where not all fit, these stay: the help tells the others.
_STAYS: Final = frozenset({"help", "quit", "dismiss"})


class Keys(Footer):
    """As many keys as there is room for, the first ones first; of the way out and to help, all."""

    def compose(self) -> ComposeResult:
        """Keys, each whole."""
        keys = [one for one in super().compose() if isinstance(one, FooterKey)]
        left = self.app.size.width - sum(_width(one) for one in keys if one.action in _STAYS)
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
    return cell_len(key.key_display) + cell_len(key.description) + 2
