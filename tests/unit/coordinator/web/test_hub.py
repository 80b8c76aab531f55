"""What the open pages are told when another one is opened."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.clock import Now
from broker.protocol.messages import encode
from broker.protocol.topics import Topics
from broker.system.settings import BrokerSettings
from coordinator.client.contact import Outage
from coordinator.client.watcher import Watcher
from coordinator.web.hub import Hub, News
from tests.harness.mirrored import told_row

TOPICS = Topics()
NOW = Now(1.0, 1_000_000.0)


def _hears(watcher: Watcher, letter: str) -> None:
    """The watcher hears of a pending job, whose id is that letter 64 times."""
    row = told_row(letter, job_id=letter * 64)
    watcher._mirror.apply(TOPICS.parse(TOPICS.job(row.job_id)), encode(row), NOW)


@pytest.fixture
def watcher() -> Watcher:
    """One that is not started: it hears what the test has it hear."""
    return Watcher(BrokerSettings(), clock=lambda: NOW)


def test_a_page_that_is_opened_tells_the_others_nothing_that_is_old(watcher: Watcher) -> None:
    """With thousands of jobs each look is felt; one is enough for what has changed."""
    _hears(watcher, "a")
    hub, told = Hub(lambda _: watcher, lambda: NOW), list[News]()
    hub.catch_up()
    hub.follow(told.append)
    for _ in range(2):  # pages
        hub.catch_up()
        for _ in range(5):  # parts of a page that follow
            hub.follow(lambda _: None)
    assert told == []
    _hears(watcher, "b")
    hub.catch_up()
    hub.follow(lambda _: None)
    assert [[row["name"] for row in news.jobs.add] for news in told] == [["b"]]
    watcher.outage = Outage("broker", 0.5, "connection refused")
    hub.catch_up()
    assert hub.outage == watcher.outage, "a page that is opened in an outage begins with it"


def test_a_page_misses_nothing_that_changes_while_it_is_made(watcher: Watcher) -> None:
    hub, told = Hub(lambda _: watcher, lambda: NOW), list[News]()
    _hears(watcher, "a")
    hub.catch_up()
    shown = [row["name"] for row in hub.tables.jobs.rows.values()]
    _hears(watcher, "b")
    hub.follow(told.append)
    _hears(watcher, "c")
    hub.refresh()
    assert shown + [row["name"] for news in told for row in news.jobs.add] == ["a", "b", "c"]


def test_a_page_that_fails_keeps_no_other_from_its_news(
    watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    """What was wrong is in the log; whoever is told last is told all the same."""
    hub, told = Hub(lambda _: watcher, lambda: NOW), list[News]()

    def fails(_: News) -> None:
        raise ValueError("a page of nothing")

    hub.follow(fails)
    hub.follow(told.append)
    _hears(watcher, "a")
    hub.refresh()
    assert [[row["name"] for row in news.jobs.add] for news in told] == [["a"]]
    assert "a page of nothing" in caplog.text


def test_a_page_that_another_one_ends_is_told_no_more(watcher: Watcher) -> None:
    hub, told = Hub(lambda _: watcher, lambda: NOW), list[News]()
    ends = list[Callable[[], None]]()
    hub.follow(lambda _: ends[0]())
    ends.append(hub.follow(told.append))
    _hears(watcher, "a")
    hub.refresh()
    assert told == []
