"""Wraps lines on a terminal: between words, never in a command or between figure and unit.

And quotes the words of commands that people copy.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import Final, TextIO

LEAST: Final = 20  # columns; a narrower window breaks lines by itself
HANG: Final = 2  # blanks; so much further in a complaint goes on
_HELD: Final = "\N{NO-BREAK SPACE}"  # where no line may be broken, while lines are
_COMMAND: Final = re.compile(r"`[^`\n]+`")
# What moves a cursor, sets a title or turns the writing round: C0 but for tabs and line ends, DEL,
# C1, and the line ends and directions of Unicode.
_CONTROL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
_CONTROLS: Final = re.compile(_CONTROL)
_SEQUENCES: Final = re.compile(rf"(?:\x1b\[|\x9b)[0-9;?]*[ -/]*[@-~]|{_CONTROL}")
# What neither cmd.exe nor PowerShell takes for anything else.
_BARE: Final = re.compile(r"[\w+=:./\\-][\w+=:./\\@-]*")
_AMOUNT: Final = re.compile(r"\b\d[\d.,]* (?=(?:ms|s|min|h|d|B|[KMGT]i?B|W|GHz|%)(?![\w%]))")


def laid_out(text: str, out: TextIO, *, indent: int = 0, least: int = LEAST) -> str:
    """Return printable text for `out`; on a terminal, wrapped with a hanging indent."""
    text = printable(text)
    if not out.isatty():
        return text
    import shutil
    import textwrap

    width = max(least, shutil.get_terminal_size().columns)
    lines = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        before = " " * (len(line) - len(words))
        broken = textwrap.fill(
            held(words, _HELD),
            width,
            initial_indent=before,
            subsequent_indent=before + " " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines.append(broken.replace(_HELD, " "))
    return "\n".join(lines)


def printable(text: str) -> str:
    """Return text from elsewhere without control characters, except line ends and tabs."""
    return _SEQUENCES.sub("", text)


def json_text(data: object, indent: int | None = None) -> str:
    """Return JSON whose control characters are escaped."""
    import json

    text = json.dumps(data, indent=indent, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def quoted(word: object, *, windows: bool = sys.platform == "win32") -> str:
    """Return a word of a command, as one types it in a shell of this system."""
    text = str(word)
    if not windows:
        return shlex.quote(text)
    return text if _BARE.fullmatch(text) else f'"{text}"'


def complain(text: str) -> None:
    """Write an error to standard error."""
    sys.stderr.write(laid_out(f"error: {text}", sys.stderr, indent=HANG) + "\n")


def held(text: str, blank: str) -> str:
    """Return text with `blank`, a character, at each place where no line may be broken."""
    for whole in (_COMMAND, _AMOUNT):
        text = whole.sub(lambda found: found[0].replace(" ", blank), text)
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Print the arguments, wrapped: the Makefile uses it."""
    text = " ".join(sys.argv[1:] if argv is None else argv)
    sys.stdout.write(laid_out(text, sys.stdout) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
