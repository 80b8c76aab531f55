"""Who may change something through the web page."""

from __future__ import annotations

import itertools

import pytest

from coordinator.web.security import MAX_SESSIONS, SESSION_S, TRIES, TRIES_IN_S, Door, local_path

PASSWORD = "a long enough password"  # noqa: S105 - opens nothing


def _door(password: str | None = PASSWORD) -> Door:
    numbers = itertools.count()
    return Door(password, lambda: f"word-{next(numbers)}")


def test_the_password_opens_and_nothing_else_does() -> None:
    """A browser's word is worth what stands behind it: nothing, for one that was made up."""
    door = _door()
    word = door.enter(PASSWORD, 0.0)
    assert word is not None
    assert door.is_open(word, 1.0)
    for other in (None, "", "word-7", word + " ", "x" * 300, "\ud800"):
        assert not door.is_open(other, 1.0)
    assert door.enter(PASSWORD + " ", 1.0) is None
    assert door.enter("", 1.0) is None


def test_without_a_password_nobody_gets_in() -> None:
    """Not with an empty one, either."""
    door = _door(None)
    assert door.enter("", 0.0) is None
    assert door.enter("None", 0.0) is None


def test_a_session_ends_by_itself_and_by_a_logout() -> None:
    """And stays ended: the same word opens nothing any more."""
    door = _door()
    first, second = door.enter(PASSWORD, 0.0), door.enter(PASSWORD, 0.0)
    door.leave(first)
    assert not door.is_open(first, 1.0)
    assert door.is_open(second, SESSION_S - 1.0)
    assert not door.is_open(second, SESSION_S)
    door.leave("never heard of")


def test_guessing_is_slow_whoever_guesses() -> None:
    """After a few wrong passwords not even the right one is looked at, for a while."""
    door = _door()
    for second in range(TRIES):
        assert door.wait_s(float(second)) == 0.0
        assert door.enter("guess", float(second)) is None
    assert door.wait_s(10.0) == pytest.approx(TRIES_IN_S - 10.0)
    assert door.enter(PASSWORD, 10.0) is None
    assert door.enter(PASSWORD, TRIES_IN_S) is not None


def test_sessions_do_not_grow_without_bound() -> None:
    """The oldest one goes."""
    door = _door()
    words = [door.enter(PASSWORD, 0.0) for _ in range(MAX_SESSIONS + 1)]
    assert not door.is_open(words[0], 1.0)
    assert door.is_open(words[1], 1.0)


@pytest.mark.parametrize("path", ["/", "/jobs?state=failed", "/job/" + "a" * 64])
def test_a_login_leads_back_to_a_page_of_ours(path: str) -> None:
    """To the one that it was asked from."""
    assert local_path(path) == path


@pytest.mark.parametrize(
    "path",
    [None, "", "jobs", "//evil.example", "/\\evil.example", "https://evil.example", "/\n/x",
     "\\\\evil", "/" + "x" * 600],
)  # fmt: skip
def test_a_login_leads_to_nobody_else(path: str | None) -> None:
    """A link that somebody has prepared does not send a browser on."""
    assert local_path(path) == "/"
