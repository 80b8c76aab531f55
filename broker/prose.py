"""Sentences on a terminal: broken between words, and never within a command that one may copy.

Nor between a figure and its unit: `2 s` at the end of a line and at the start of the next is no
amount any more.
"""

from __future__ import annotations

import re
from typing import Final, TextIO

LEAST: Final = 20  # columns; a narrower window breaks lines by itself
_HELD: Final = "\N{NO-BREAK SPACE}"  # where no line may be broken, while lines are
_COMMAND: Final = re.compile(r"`[^`\n]+`")
_AMOUNT: Final = re.compile(r"\b\d[\d.,]* (?=(?:ms|s|min|h|d|B|[KMGT]i?B|W|GHz|%)(?![\w%]))")


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
            held(line, _HELD),
            width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        ).replace(_HELD, " ")
        for line in text.split("\n")
    ]
    return "\n".join(lines)


def held(text: str, blank: str) -> str:
    """Return text with `blank`, a character, at each place where no line may be broken."""
    for whole in (_COMMAND, _AMOUNT):
        text = whole.sub(lambda found: found[0].replace(" ", blank), text)
    return text


def span(seconds: float) -> str:
    """Return a duration in the largest unit that fits: `45 s`, `3 min`, `2.5 h`, `4 d`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} d"
