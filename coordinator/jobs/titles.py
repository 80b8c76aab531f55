"""Programs and datasets are called `NAME@DIGEST`; which one a text means, as people write it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import JsonValue

from broker.protocol import hyperschema

ALONE: Final = 6  # digits of a digest that stand for it without a name
_DIGITS: Final = 12  # of a digest, for people
_MOST: Final = 8


def is_path(text: str) -> bool:
    """Whether a text is the path of a folder, and no title."""
    return text.startswith((".", "~")) or "/" in text or "\\" in text


def meant(text: str, titles: Iterable[str]) -> list[str]:
    """Return those of some titles that `NAME`, `NAME@DIGEST` or a digest's beginning may mean.

    A name alone means the newest of it, which comes last.
    """
    known = [*titles]
    if "@" in text:
        return [one for one in known if one.startswith(text)]
    named = [one for one in known if one.startswith(f"{text}@")][-1:]
    if named or len(text) < ALONE:
        return named
    return [one for one in known if one.partition("@")[2].startswith(text)]


def not_one(text: str, titles: Iterable[str]) -> dict[str, JsonValue]:
    """Return the figures of the cause that a text means none of these, or `count` of them.

    `there` are the newest that it may mean, or of the same name, and `more` those beside; if there
    are none, `meant` is the closest name.
    """
    known = [*titles]
    found, name = meant(text, known), text.partition("@")[0]
    near = found or [one for one in known if one.partition("@")[0] == name]
    names = {one.partition("@")[0] for one in known}
    return {
        "name": text,
        "count": len(found),
        "there": [one[: one.index("@") + 1 + _DIGITS] for one in near[-_MOST:]],
        "more": max(0, len(near) - _MOST),
        "meant": None if near else hyperschema.meant(name, sorted(names)),
    }
