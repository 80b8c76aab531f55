"""Which of the names that there are is meant by one that there is not."""

from __future__ import annotations

from collections.abc import Iterable


def meant(word: str, known: Iterable[str]) -> str | None:
    """Return which of the names is the likeliest, none where none is like it.

    Two letters swapped count as two mistakes, as many as a name of other letters has: of those that
    are like it, the one with the same letters is meant.
    """
    from difflib import get_close_matches  # of no use where all is well

    names = list(known)
    close = get_close_matches(word, names, n=max(1, len(names)))
    letters = sorted(word)
    alike = (one for one in close if sorted(one) == letters)
    return next(alike, close[0] if close else None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or the list of what is known."""
    names = sorted(known)
    close = meant(word, names)
    if close is not None:
        return f"; did you mean {close!r}?"
    return f"; known are: {', '.join(names)}" if names else ""
