"""The table of rights as a real broker enforces it: every role on every topic, over TLS.

What a broker answers proves nothing: mosquitto acknowledges what it forbids. So a cell counts by
what is delivered. A publication is allowed when somebody who may read everything was sent it, a
subscription when its owner was sent anything on that topic.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.acl import rights_of
from broker.deploy.mosquitto import AUTOSAVE_CHANGES
from broker.topics import Topics
from tests.harness import secured
from tests.harness.certificates import Authority
from tests.harness.secured import Actor, Secured
from tests.harness.tree import EVERYBODY, tree

WITNESS = "observer:witness"  # reads everything of the fleet, and is sent it by everybody
PEOPLE = ("operator:alice", "operator:bob", "observer:carol", "observer:dave", WITNESS)
TOPICS = Topics()
FOREIGN = ("homeassistant/status", "homeassistant/sensor/fleet/state/config",
           "fleet/homeassistant/host/state", "fleet/homeassistant/host/set",
           "elsewhere/one/status")  # fmt: skip
END = TOPICS.coordinator_status()  # everybody may read it


@dataclass
class Cells:
    """The cells of a matrix, each (name, topic): what works, of what was tried."""

    publish: dict[tuple[str, str], bool] = field(default_factory=dict)
    subscribe: dict[tuple[str, str], bool] = field(default_factory=dict)

    def counts(self) -> str:
        """Return how many cells of each kind work, as a line for a report."""
        return ", ".join(
            f"{kind}: {sum(cells.values())} of {len(cells)} allowed"
            for kind, cells in (("publish", self.publish), ("subscribe", self.subscribe))
        )


def measure(broker: Secured, topics: list[str]) -> Cells:
    """Return which cells work: one connection a name, one pass over everything."""
    cells = Cells()
    with contextlib.ExitStack() as stack:
        actors = {}
        for name in (WITNESS, *(who.name for who in EVERYBODY)):
            actors[name] = broker.connect(name)
            stack.callback(actors[name].stop)
        for actor in actors.values():
            # The greedy filters are for brokers that grant them, and filter what they deliver.
            for filter_ in (*topics, END, "fleet/#", "+/#", "#"):
                actor.subscribe(filter_)
        for who in EVERYBODY:
            for topic in topics:
                actors[who.name].publish(topic, who.name.encode())
        actors["coordinator"].publish(END, b"end")
        heard = {name: {*actor.heard_until((END, b"end"))} for name, actor in actors.items()}
    witnessed = heard[WITNESS] | heard["homeassistant"]
    for who in EVERYBODY:
        on = {topic for topic, _ in heard[who.name]}
        for topic in topics:
            cells.publish[who.name, topic] = (topic, who.name.encode()) in witnessed
            cells.subscribe[who.name, topic] = topic in on
    return cells


def expected(topics: list[str]) -> Cells:
    """Return what the table says."""
    cells = Cells()
    for who in EVERYBODY:
        rights = rights_of(who, TOPICS)
        for topic in topics:
            cells.publish[who.name, topic] = rights.may_publish(topic)
            cells.subscribe[who.name, topic] = rights.may_receive(topic)
    return cells


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with the files that the fleet renders for it."""
    made = secured.mosquitto(tmp_path_factory.mktemp("mosquitto"), people=PEOPLE)
    made.start()
    yield made
    made.end()


@pytest.fixture
def connect(broker: Secured) -> Iterator[Callable[..., Actor]]:
    """`connect(name, ...)`: a client that is stopped at the test's end."""
    made: list[Actor] = []

    def connected(name: str, **options: object) -> Actor:
        made.append(broker.connect(name, **options))
        return made[-1]

    yield connected
    for actor in made:
        actor.stop()


def test_exactly_the_allowed_cells_work(
    broker: Secured, record_property: Callable[[str, object], None]
) -> None:
    """Every role, every topic of the tree, both ways."""
    topics = [topic for _, _, topic in tree(TOPICS)] + list(FOREIGN)
    found, wanted = measure(broker, topics), expected(topics)
    record_property("cells", found.counts())
    print(found.counts())
    assert found.publish == wanted.publish
    assert found.subscribe == wanted.subscribe


def test_a_will_on_anothers_topic_is_not_published(connect: Callable[..., Actor]) -> None:
    """A host cannot announce the death of another; its own it can."""
    watcher = connect(WITNESS)
    watcher.subscribe("fleet/#", 1)
    for topic in (TOPICS.status("two"), TOPICS.status("one")):
        with contextlib.suppress(AssertionError):  # a broker may refuse the connection as well
            connect("one", will=(topic, b"dead")).break_off()
    assert watcher.got.get(timeout=20) == (TOPICS.status("one"), b"dead")
    connect("coordinator").publish(END, b"end")
    assert watcher.heard_until((END, b"end")) == []


def test_what_is_retained_is_sent_to_those_who_may_read_it(connect: Callable[..., Actor]) -> None:
    """Whatever they subscribe to."""
    connect("two").publish(TOPICS.capability("two"), b"retained", retain=True)
    connect("coordinator").publish(TOPICS.coordinator_status(), b"up", retain=True)
    for name, expected_ in (
        ("one", [(END, b"up")]),
        (WITNESS, [(END, b"up"), (TOPICS.capability("two"), b"retained")]),
    ):
        reader = connect(name)
        reader.subscribe("#", 1)
        connect("coordinator").publish(END, b"end")
        assert sorted(reader.heard_until((END, b"end"))) == expected_
    for name, topic in (("two", TOPICS.capability("two")), ("coordinator", END)):
        connect(name).publish(topic, b"", retain=True)


@pytest.mark.parametrize("client_id", ["coordinator", "fleet-coordinator", "fleet-thief"])
def test_a_client_id_throws_no_host_off(
    broker: Secured, connect: Callable[..., Actor], client_id: str
) -> None:
    """Neither the coordinator, from the hosts' listener or from the people's, by whatever id."""
    victim = connect("coordinator")
    victim.subscribe(TOPICS.response("one"), 1)
    for port in (broker.ports.people, broker.ports.hosts):
        thief = Actor("one", broker, client_id=client_id, port=port)
        if thief.try_connect():
            thief.publish(TOPICS.response("one"), b"mine")
            assert victim.got.get(timeout=20) == (TOPICS.response("one"), b"mine")
            thief.stop()
    assert not victim.gone.is_set()


def test_the_programs_of_one_person_run_side_by_side(connect: Callable[..., Actor]) -> None:
    """Each has a client id of its own on the people's listener."""
    first, second = (connect("operator:alice", client_id=f"fleet-cli-{n}") for n in "12")
    for one in (first, second):
        one.subscribe("fleet/jobs/+", 1)
    connect("coordinator").publish("fleet/jobs/" + "1" * 64, b"row")
    assert [one.got.get(timeout=20)[1] for one in (first, second)] == [b"row", b"row"]


def test_nobody_gets_in_without_a_certificate_of_this_fleet(
    broker: Secured, tmp_path: Path
) -> None:
    """Nor with one that another CA made, however it is named; nor in plain text."""
    stranger = Authority(tmp_path / "stranger")
    for port in (broker.ports.hosts, broker.ports.people):
        for name in ("coordinator", "one", "operator:alice"):
            assert not Actor(name, broker, authority=stranger, port=port).try_connect()
        assert not Actor("one", broker, port=port, anonymous=True).try_connect()
        assert not Actor("one", broker, port=port, plain=True).try_connect()


def test_whoever_is_revoked_gets_in_no_more(tmp_path: Path) -> None:
    """By the list that lies with the broker's certificates; everybody else does."""
    made = secured.mosquitto(tmp_path, people=PEOPLE, revoked=("two", "operator:bob"))
    made.start()
    try:
        for name in ("one", "coordinator", "operator:alice", "two", "operator:bob"):
            actor = Actor(name, made)
            assert actor.try_connect() == (name not in {"two", "operator:bob"}), name
            actor.stop()
    finally:
        made.end()


def test_a_kill_keeps_what_was_retained(tmp_path: Path) -> None:
    """But for as many changes as the file says; wills and QoS are not what the fleet rests on."""
    made = secured.mosquitto(tmp_path, people=PEOPLE)
    made.start()
    try:
        writer = made.connect("coordinator")
        count = 3 * AUTOSAVE_CHANGES
        for number in range(count):
            writer.publish(f"fleet/jobs/{number:064x}", b"row", retain=True)
        writer.stop()
        made.end(signal.SIGKILL)
        made.start()
        writer, reader = made.connect("coordinator"), made.connect(WITNESS)
        reader.subscribe("fleet/#", 1)
        writer.publish(END, b"end")
        assert len(reader.heard_until((END, b"end"))) >= count - AUTOSAVE_CHANGES
        writer.stop()
        reader.stop()
    finally:
        made.end()


def test_loopback_is_served_in_plain_text_if_asked_for(tmp_path: Path) -> None:
    """Everybody on the machine may do everything; over TLS nothing changes."""
    made = secured.mosquitto(tmp_path, people=PEOPLE, loopback=True)
    made.start()
    try:
        local = Actor("one", made, "fleet-local", plain=True, port=made.ports.loopback)
        assert local.try_connect()
        local.subscribe("fleet/#", 1)
        local.publish(TOPICS.request("two"), b"do")
        assert local.got.get(timeout=20) == (TOPICS.request("two"), b"do")
        remote = made.connect("one")
        remote.publish(TOPICS.request("two"), b"forged")
        remote.publish(TOPICS.heartbeat("one"), b"beat")
        assert local.got.get(timeout=20) == (TOPICS.heartbeat("one"), b"beat")
        assert not Actor("one", made, anonymous=True).try_connect()
        local.stop()
        remote.stop()
    finally:
        made.end()
