"""Who may do what in the web page: a password makes a browser an operator's.

Values and the time in, values out. What a browser is given is a random word that says nothing; all
that it stands for is kept here, so that a logout, and the end of the process, ends it for good.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

SESSION_S: Final = 12 * 3600.0
MAX_SESSIONS: Final = 1_000
TRIES: Final = 5  # wrong passwords
TRIES_IN_S: Final = 60.0


@dataclass(slots=True)
class Door:
    """Who has shown the password. `password` none: nobody can, the page is to look at only."""

    password: str | None
    new_word: Callable[[], str]
    _ends_s: OrderedDict[bytes, float] = field(default_factory=OrderedDict)
    _wrong_s: deque[float] = field(default_factory=lambda: deque(maxlen=TRIES))

    def wait_s(self, now_s: float) -> float:
        """Return for how long no further password is looked at: wrong ones were too many.

        Counted over all browsers: an attacker has many addresses.
        """
        if len(self._wrong_s) < TRIES:
            return 0.0
        return max(0.0, self._wrong_s[0] + TRIES_IN_S - now_s)

    def enter(self, password: str, now_s: float) -> str | None:
        """Return the word of a new session, or none for a wrong password, or one too many."""
        if self.password is None or self.wait_s(now_s) > 0.0:
            return None
        # Digests: of equal length whatever was typed, so that no time tells the password's.
        given, wanted = (sha256(text.encode()).digest() for text in (password, self.password))
        if not hmac.compare_digest(given, wanted):
            self._wrong_s.append(now_s)
            return None
        word = self.new_word()
        self._ends_s[_of(word)] = now_s + SESSION_S
        while len(self._ends_s) > MAX_SESSIONS:
            self._ends_s.popitem(last=False)
        return word

    def is_open(self, word: str | None, now_s: float) -> bool:
        """Whether a browser's word stands for somebody who has shown the password."""
        if not word or len(word) > 200:
            return False
        return self._ends_s.get(_of(word), 0.0) > now_s

    def leave(self, word: str | None) -> None:
        """End a session; what it does not know, it lets go."""
        if word:
            self._ends_s.pop(_of(word[:200]), None)


def _of(word: str) -> bytes:
    """What stands for a word in the table: how long a look-up takes then tells nothing of it."""
    return sha256(word.encode("utf-8", "replace")).digest()


def local_path(text: str | None) -> str:
    """Return a path of this site to go to, or the first page for anything else.

    What is not one plain path would send a browser to somebody else's site.
    """
    if not text or len(text) > 500 or not text.startswith("/") or "\\" in text:
        return "/"
    if not text.isprintable() or text.startswith("//"):
        return "/"
    parts = urlsplit(text)
    return "/" if parts.scheme or parts.netloc else text
