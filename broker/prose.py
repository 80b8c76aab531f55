"""Sentences on a terminal: broken between words, and never within a command that one may copy."""

from __future__ import annotations

import re
from typing import Final, TextIO

LEAST: Final = 20  # columns; a narrower window breaks lines by itself
COMMAND: Final = re.compile(r"`[^`\n]+`")
_HELD: Final = "\N{NO-BREAK SPACE}"  # within a command, while lines are broken


def laid_out(text: str, out: TextIO, *, indent: int = 0, least: int = LEAST) -> str:
    """Return text as it is to be written to `out`: for a program, a line stays a line.

    On a terminal what does not fit goes on in the next line, after `indent` blanks; a window that
    has fewer than `least` columns is taken to have as many.
    """
    if not out.isatty():
        return text
    import shutil
    import textwrap

    width = max(least, shutil.get_terminal_size().columns)
    lines = [
        textwrap.fill(
            COMMAND.sub(lambda found: found[0].replace(" ", _HELD), line),
            width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        ).replace(_HELD, " ")
        for line in text.split("\n")
    ]
    return "\n".join(lines)
