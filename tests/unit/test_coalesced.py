"""What is asked for more often than it can be done: the machine's figures, at a slow driver."""

from __future__ import annotations

import threading
from functools import partial

from agent.service.coalesced import Coalesced

DEADLINE_S = 60.0


def test_of_all_that_waits_the_newest_alone_is_done() -> None:
    """A driver that takes ten seconds is not asked once for each assignment that waits for it."""
    begun, driver, over = threading.Event(), threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        begun.set()
        assert driver.wait(DEADLINE_S)
        done.append("slow")

    def newest() -> None:
        done.append("of two cards")
        over.set()

    measuring = Coalesced("test")
    measuring.ask(slow)
    assert begun.wait(DEADLINE_S)
    for work in (partial(done.append, "of none"), partial(done.append, "of none"), newest):
        measuring.ask(work)
    driver.set()
    assert over.wait(DEADLINE_S)
    measuring.close()
    assert done == ["slow", "of two cards"]


def test_what_is_asked_for_while_it_is_done_is_done_again() -> None:
    """It may be older than the question."""
    begun, driver, again = threading.Event(), threading.Event(), threading.Event()
    measuring = Coalesced("test")

    def slow() -> None:
        begun.set()
        assert driver.wait(DEADLINE_S)

    measuring.ask(slow)
    assert begun.wait(DEADLINE_S)
    measuring.ask(again.set)
    driver.set()
    assert again.wait(DEADLINE_S)
    measuring.close()
