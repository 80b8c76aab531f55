"""The table of rights: everything that the fleet does is in it, and nothing else."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import BadTopic, ConfigError
from broker.protocol.acl import TABLE, Principal, Rights, covers, matches, may_change, rights_of
from broker.protocol.topic_table import Role
from broker.protocol.topics import RESERVED, Topics
from tests.harness.tree import EVERYBODY, JOB

ROOTS = ["fleet", "site/lab/fleet"]
ANYBODY = pytest.mark.parametrize("who", EVERYBODY, ids=lambda who: who.name)


_ASK = {"fleet/operator/{name}/+/request", "fleet/operator/{name}/+/grant"}
# role -> what it may publish, what it may subscribe to
RIGHTS: dict[Role, tuple[set[str], set[str]]] = {
    Role.AGENT: (
        {
            "fleet/{name}/status", "fleet/{name}/capability", "fleet/{name}/heartbeat",
            "fleet/{name}/echo", "fleet/{name}/job/response", "fleet/{name}/job/+/log",
            "fleet/{name}/job/+/progress", "fleet/{name}/artifact/+/chunk/+",
            "fleet/{name}/checkpoint/+/grant", "fleet/{name}/identity/request",
        },
        {
            "fleet/{name}/status", "fleet/{name}/echo", "fleet/{name}/job/request",
            "fleet/{name}/artifact/+/grant", "fleet/{name}/checkpoint/+/chunk/+",
            "fleet/{name}/identity/response", "fleet/coordinator/status",
        },
    ),
    Role.COORDINATOR: (
        {
            "fleet/coordinator/status", "fleet/coordinator/summary", "fleet/coordinator/holder",
            "fleet/coordinator/echo", "fleet/jobs/+", "fleet/+/status", "fleet/+/capability",
            "fleet/+/job/request", "fleet/+/artifact/+/grant", "fleet/+/checkpoint/+/chunk/+",
            "fleet/+/identity/response", "fleet/operator/+/+/response",
            "fleet/operator/+/+/chunk/+", "fleet/operator/+/+/push-grant",
            "homeassistant/+/+/+/config",
            "fleet/homeassistant/+/state", "fleet/homeassistant/+/event",
        },
        {
            "fleet/coordinator/status", "fleet/coordinator/holder", "fleet/coordinator/echo",
            "fleet/+/status", "fleet/+/capability", "fleet/+/heartbeat", "fleet/+/job/response",
            "fleet/+/job/+/log", "fleet/+/job/+/progress", "fleet/+/artifact/+/chunk/+",
            "fleet/+/checkpoint/+/grant",
            "fleet/+/identity/request", "fleet/operator/+/+/request", "fleet/operator/+/+/grant",
            "fleet/operator/+/+/push/+", "fleet/broker/refused",
            "fleet/homeassistant/+/set", "homeassistant/status",
        },
    ),
    Role.OPERATOR: (_ASK | {"fleet/operator/{name}/+/push/+"}, {"fleet/#"}),
    Role.OBSERVER: (_ASK, {"fleet/#"}),
    Role.HOMEASSISTANT: (
        _ASK | {"fleet/homeassistant/+/set", "homeassistant/status"},
        {"fleet/#", "homeassistant/#"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", Role)
def test_each_role_has_exactly_these_rights(role: Role) -> None:
    found = TABLE[role]
    publish, subscribe = ({one.replace("{root}", "fleet") for one in part}
                          for part in (found.publish, found.subscribe))  # fmt: skip
    assert (publish, subscribe) == RIGHTS[role]


@pytest.mark.parametrize("root", ROOTS)
def test_every_subscription_of_the_programs_is_covered(root: str) -> None:
    topics = Topics(root)

    def all_covered(name: str, filters: tuple[tuple[str, int], ...]) -> None:
        rights = rights_of(Principal.parse(name), topics)
        for filter_, _ in filters:
            assert rights.may_subscribe(filter_), (name, filter_)

    all_covered("coordinator", topics.for_coordinator())
    all_covered("coordinator", topics.before_coordinator())
    all_covered("gaming-pc", topics.for_agent("gaming-pc"))
    for user in ("operator:alice", "observer:carol", "homeassistant"):
        all_covered(user, topics.for_operator(f"{user}/cli-1"))


@pytest.mark.parametrize("filter_", ["#", "+/#", "fleet/#", "+/one/job/request", "fleet/+/status",
                                     "fleet/one/#", "fleet/one/checkpoint/+/chunk/#",
                                     "$SYS/#", "$share/group/fleet/one/job/request"])  # fmt: skip
def test_an_agent_may_not_subscribe_to_more_than_its_own(filter_: str) -> None:
    assert not rights_of(Principal.parse("one"), Topics()).may_subscribe(filter_)


@ANYBODY
def test_nobody_may_speak_or_listen_outside_the_fleet(who: Principal) -> None:
    rights = rights_of(who, Topics())
    for topic in ("$SYS/broker/uptime", "other/one/status", "fleet", "/fleet/one/status", "zigbee"):
        assert not rights.may_publish(topic), topic
        assert topic == "fleet" or not rights.may_receive(topic), topic
    assert not rights.may_subscribe("#")
    config = "homeassistant/sensor/fleet/state/config"
    assert rights.may_publish(config) == (who.role is Role.COORDINATOR)
    assert rights.may_receive(config) == (who.role is Role.HOMEASSISTANT)


def test_what_an_agents_pattern_gives_to_another_name_is_no_topic_of_the_fleet() -> None:
    """So a broker may grant agents' rights to whatever name a certificate bears.

    Filled with a name that no host may bear, they lead outside of the tree, where everybody drops
    what comes; but for what its owner may do anyway, and but for hearing the coordinator.
    """
    topics = Topics()
    names = [who.name for who in EVERYBODY if who.role is not Role.AGENT]
    for name in (*names, *RESERVED, "operator:", "A", "a b"):
        rights = rights_of(Principal(Role.AGENT, name), topics)
        for filter_ in (*rights.publish, *rights.subscribe):
            if filter_ in {topics.coordinator_status(), topics.echo("coordinator")}:
                continue
            for words in itertools.product((JOB, "0", "one", "operator:alice"), repeat=2):
                topic = filter_
                for word in words:
                    topic = topic.replace("+", word, 1)
                with pytest.raises(BadTopic):
                    topics.parse(topic)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("coordinator", Role.COORDINATOR),
        ("homeassistant", Role.HOMEASSISTANT),
        ("gaming-pc", Role.AGENT),
        ("pi4.attic", Role.AGENT),
        ("operator:alice", Role.OPERATOR),
        ("observer:wall-panel", Role.OBSERVER),
    ],
)
def test_a_name_tells_the_role(name: str, role: Role) -> None:
    assert Principal.parse(name) == Principal(role, name)
    assert may_change(name) == (role in {Role.OPERATOR, Role.HOMEASSISTANT})


@pytest.mark.parametrize(
    "name",
    ["", "jobs", "operator", "artifact", "broker", "fleet-pi", "fleet-coordinator",
     "Gaming-PC", "a/b", "+", "#", "operator:", "agent:x",
     "operator:a/b", "observer:+", "coordinator\n", "one\n", "operator:alice\n", "x" * 64],
)  # fmt: skip
def test_a_name_that_is_nobodys_is_refused(name: str) -> None:
    """It would reach into somebody's topics, or be mistaken for them."""
    with pytest.raises(ConfigError, match="nobody's name"):
        Principal.parse(name)
    assert not may_change(name)


LEVELS = ("", "a", "b", "$x")
TOPICS = ["/".join(levels) for n in (1, 2, 3, 4) for levels in itertools.product(LEVELS, repeat=n)]
filters = st.builds(
    lambda levels, end: "/".join([*levels, *end]) or "#",
    st.lists(st.sampled_from([*LEVELS, "+"]), max_size=3),
    st.sampled_from([(), ("#",)]),
)


def by_expression(filter_: str, topic: str) -> bool:
    """MQTT 3.1.1, 4.7, written down a second time, as a regular expression."""
    if topic.startswith("$") and filter_[:1] in {"+", "#"}:
        return False
    if filter_ == "#":
        return True
    head = filter_.removesuffix("/#")
    body = "/".join("[^/]*" if level == "+" else re.escape(level) for level in head.split("/"))
    return re.fullmatch(body + ("(/.*)?" if head != filter_ else ""), topic) is not None


@given(filters)
def test_matches_is_what_the_standard_says(filter_: str) -> None:
    for topic in TOPICS:
        assert matches(filter_, topic) == by_expression(filter_, topic), topic


@given(filters, filters)
def test_covers_agrees_with_trying_every_topic(wide: str, narrow: str) -> None:
    missed = [topic for topic in TOPICS if matches(narrow, topic) and not matches(wide, topic)]
    assert covers(wide, narrow) == (not missed), missed[:1]


@given(st.text("ab+#$/", min_size=1, max_size=12), st.sampled_from(EVERYBODY))
def test_a_filter_is_nothing_to_publish_to(topic: str, who: Principal) -> None:
    rights = rights_of(who, Topics("a"))
    if "+" in topic or "#" in topic:
        assert not rights.may_publish(topic)
        assert not Rights((topic,), ()).may_publish(topic)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("jobs", "topics of the fleet are called so"),
        ("fleet-x", "may not begin with 'fleet-'"),
        ("a" * 64, "it has 64 characters, and 63 are the most"),
        ("operator:" + "a" * 70, "it has 70 characters, and 63 are the most"),
        ("\u00dcn\u00ef", "write it with a-z, 0-9"),
        ("operator:Ann", "a letter or a digit first: 'operator:ann'"),
        ("Gaming-PC", "a letter or a digit first: 'gaming-pc'"),
        ("captain:ann", "a person like 'operator:alice'"),
        ("operator:", "a person like 'operator:alice'"),
        ("", "a host is called like 'gaming-pc'"),
    ],
)
def test_a_name_that_is_nobodys_is_told_why(name: str, fault: str) -> None:
    with pytest.raises(ConfigError, match="is nobody's name: ") as said:
        Principal.parse(name)
    assert fault in str(said.value)


def test_client_ids_differ_by_root_and_name() -> None:
    """T4: however root and name are cut, and however long the root is."""
    roots = ("a", "a/b", "a-b", "/".join(["r" * 64] * 5), "/".join(["r" * 64] * 4 + ["s"]))
    ids = {Topics(root).client_id(name) for root in roots for name in ("b", "b-c", "coordinator")}
    assert len(ids) == 3 * len(roots)
    assert all(one.startswith("fleet-") and len(one) < 140 for one in ids)
    assert Topics("fleet").client_id("pi") == "fleet-fleet/pi"
