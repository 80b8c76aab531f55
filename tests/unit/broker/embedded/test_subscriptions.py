"""Subscribers, and retained messages, are found as by comparing with each filter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.embedded.message import Message
from broker.embedded.retained import Allowance, Retained
from broker.embedded.subscriptions import Subscription, Subscriptions, is_filter
from broker.protocol.acl import matches

LEVELS = st.sampled_from(["", "a", "b", "cc", "$x", "é\n"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join)
FILTERS = st.lists(
    st.one_of(LEVELS, st.just("+"), st.just("#")), min_size=1, max_size=5
).map("/".join).filter(is_filter)  # fmt: skip


@given(st.lists(FILTERS, max_size=8), TOPICS)
def test_subscribers_are_those_whose_filters_match(filters: list[str], topic: str) -> None:
    subscriptions: Subscriptions[str] = Subscriptions()
    for number, filter_ in enumerate(filters):
        subscriptions.add(filter_, f"{number}", Subscription(number % 3))
    wanted = {f"{n}": [Subscription(n % 3)] for n, one in enumerate(filters) if matches(one, topic)}
    assert subscriptions.matching(topic) == wanted
    for number, filter_ in enumerate(filters):
        subscriptions.remove(filter_, f"{number}")
    assert not subscriptions._tree._root._children, "it takes memory still"


@given(st.lists(TOPICS, max_size=12, unique=True), FILTERS)
def test_retained_topics_under_a_filter_are_those_that_match(
    topics: list[str], filter_: str
) -> None:
    """In the order in which they first came, as people have the rows of jobs listed."""
    retained = Retained(Allowance(100, 10_000))
    for topic in (*topics, *topics[:1]):
        assert retained.keep("", Message(topic, b"x"))
    assert retained.under(filter_) == [one for one in topics if matches(filter_, one)]
    for topic in topics:
        retained.clear(topic)
    assert not len(retained)
