"""The table of rights as a real broker enforces it: every role on every topic, over TLS.

What a broker answers proves nothing: mosquitto acknowledges what it forbids. So a cell counts by
what is delivered. A publication is allowed when somebody who may read everything was sent it, a
subscription when its owner was sent anything on that topic.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from broker.deploy.mosquitto import AUTOSAVE_CHANGES
from broker.protocol.acl import Principal, rights_of
from broker.protocol.messages import MAX_CHUNK_BYTES
from broker.protocol.topics import MAX_CHUNKS, Topics
from tests.harness.secure import House
from tests.harness.secured import HOSTS, PEOPLE, WITNESS, Actor, Secured
from tests.harness.traits import trait
from tests.harness.tree import EVERYBODY, tree
from tests.harness.waiting import wait_until

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


def measure(broker: Secured, topics: list[str], *, websocket: bool) -> Cells:
    """Return which cells work: one connection a name, one pass over everything."""
    cells = Cells()
    with contextlib.ExitStack() as stack:
        actors = {}
        for name in (WITNESS, *(who.name for who in EVERYBODY)):
            actors[name] = broker.connect(name, websocket=websocket)
            stack.callback(actors[name].stop)
        for actor in actors.values():
            # The greedy filters are for brokers that grant them, and filter what they deliver.
            for filter_ in (*topics, END, "fleet/#", "+/#", "#"):
                actor.subscribe(filter_)
        heard: dict[str, set[tuple[str, bytes]]] = {name: set() for name in actors}
        for who in EVERYBODY:
            for number, topic in enumerate(topics):
                actors[who.name].publish(topic, who.name.encode())
                # RabbitMQ disconnects for the next one that is forbidden, and what it has
                # acknowledged but not delivered yet to the publisher itself is lost with that.
                until = f"{who.name} {number}".encode()
                actors["coordinator"].publish(END, until)
                heard[who.name].update(actors[who.name].heard_until((END, until)))
        actors["coordinator"].publish(END, b"end")
        for name, actor in actors.items():
            heard[name].update(actor.heard_until((END, b"end")))
    witnessed = heard[WITNESS] | heard["homeassistant"]
    names = {who.name.encode() for who in EVERYBODY} | {b"end"}
    for who in EVERYBODY:
        # What the broker itself says now and then is nobody's of these.
        on = {topic for topic, payload in heard[who.name] if payload in names}
        for topic in topics:
            cells.publish[who.name, topic] = (topic, who.name.encode()) in witnessed
            cells.subscribe[who.name, topic] = topic in on
    return cells


def expected(topics: list[str]) -> Cells:
    cells = Cells()
    told = {topic for topic in topics if any(_may_publish(who, topic) for who in EVERYBODY)}
    for who in EVERYBODY:
        rights = rights_of(who, TOPICS)
        for topic in topics:
            cells.publish[who.name, topic] = rights.may_publish(topic)
            # What the broker alone may say is heard from nobody here.
            cells.subscribe[who.name, topic] = topic in told and rights.may_receive(topic)
    return cells


def _may_publish(who: Principal, topic: str) -> bool:
    return rights_of(who, TOPICS).may_publish(topic)


@pytest.fixture
def connect(broker: Secured, connect_to: Callable[..., Actor]) -> Callable[..., Actor]:
    """`connect(name, ...)`: a client of that broker."""
    return partial(connect_to, broker)


@pytest.mark.parametrize("websocket", [False, True], ids=["tcp", "websocket"])
def test_exactly_the_allowed_cells_work(
    broker: Secured, record_property: Callable[[str, object], None], websocket: bool
) -> None:
    topics = [topic for _, _, topic in tree(TOPICS)] + list(FOREIGN)
    found, wanted = measure(broker, topics, websocket=websocket), expected(topics)
    record_property("cells", found.counts())
    print(found.counts())
    assert found.publish == wanted.publish
    assert found.subscribe == wanted.subscribe


def test_an_agents_subscriptions_bring_what_is_its_own(connect: Callable[..., Actor]) -> None:
    agent, coordinator = connect("one"), connect("coordinator")
    for filter_, qos in TOPICS.for_agent("one"):
        assert agent.subscribe(filter_, qos), filter_
    for topic in (TOPICS.request("one"), TOPICS.checkpoint_chunk("one", "a" * 64, 0), END):
        coordinator.publish(topic, b"x")
        assert agent.next() == (topic, b"x")


def test_what_is_forbidden_is_answered_as_told(
    broker: Secured, connect: Callable[..., Actor]
) -> None:
    """An operator who looks for a fault has to know whether an answer means anything."""
    agent = connect("one")
    acknowledged = agent.publish(TOPICS.request("two"), b"do")
    found = "acknowledged, dropped" if acknowledged else "disconnected"
    assert found == trait("a forbidden publication", broker.kind)
    answer = agent.answer_to("fleet/#", 1)
    found = {1: "granted, nothing comes", 0x80: "refused", None: "disconnected"}[answer]
    assert found == trait("a forbidden subscription", broker.kind)


@pytest.mark.parametrize("filter_", ["$MQTT/sub/#", "$MQTT/#", "$JS/#", "$SYS/#", "#"])
def test_a_brokers_own_topics_tell_an_agent_nothing(
    broker: Secured, connect: Callable[..., Actor], filter_: str
) -> None:
    """NATS delivers others' messages through topics of its own."""
    spy, other, coordinator = connect("one"), connect("two"), connect("coordinator")
    spy.subscribe(filter_, 1)
    spy.subscribe(END, 1)
    other.subscribe(TOPICS.request("two"), 1)
    coordinator.publish(TOPICS.request("two"), b"secret")
    assert other.next() == (TOPICS.request("two"), b"secret")
    coordinator.publish(END, b"end")
    assert spy.heard_until((END, b"end")) == []


def test_a_will_on_anothers_topic_is_not_published(
    broker: Secured, connect: Callable[..., Actor]
) -> None:
    watcher = connect(WITNESS)
    watcher.subscribe("fleet/+/status", 1)
    liar = Actor("one", broker, will=(TOPICS.status("two"), b"dead"))
    found = "not published" if liar.try_connect() else "connection refused"
    assert found == trait("a will on another's topic", broker.kind)
    if found == "not published":
        liar.break_off()
    connect("one", will=(TOPICS.status("one"), b"dead")).break_off()
    assert watcher.next() == (TOPICS.status("one"), b"dead")
    connect("coordinator").publish(END, b"end")
    assert watcher.heard_until((END, b"end")) == []


def test_what_is_retained_is_sent_to_those_who_may_read_it(
    broker: Secured, connect: Callable[..., Actor]
) -> None:
    writers = {name: connect(name) for name in ("two", "coordinator")}
    writers["two"].publish(TOPICS.capability("two"), b"retained", retain=True)
    reader = connect(WITNESS)
    reader.subscribe(TOPICS.capability("two"), 1)
    assert reader.next() == (TOPICS.capability("two"), b"retained")
    assert trait("retained messages, by an exact filter", broker.kind) == "sent"
    for name, filter_ in (("one", "#"), ("one", TOPICS.capability("two")), (WITNESS, "fleet/#")):
        reader = connect(name, client_id=f"fleet-reader-{len(filter_)}")
        reader.subscribe(END, 1)
        reader.subscribe(filter_, 1)
        writers["coordinator"].publish(END, b"end")
        sent = (TOPICS.capability("two"), b"retained") in reader.heard_until((END, b"end"))
        by_wildcard = trait("retained messages, by a wildcard", broker.kind) == "sent"
        assert sent == (name == WITNESS and by_wildcard)
        reader.stop()
    writers["two"].publish(TOPICS.capability("two"), b"", retain=True)


@pytest.mark.parametrize("client_id", ["coordinator", "fleet-coordinator", "fleet-thief"])
def test_a_client_id_throws_no_host_off(
    broker: Secured, connect: Callable[..., Actor], client_id: str
) -> None:
    victim = connect("coordinator")
    harmful = trait("using another's client id", broker.kind) == "throws them off"
    for port in dict.fromkeys((broker.ports.people, broker.ports.hosts)):
        thief = Actor("one", broker, client_id=client_id, port=port)
        if thief.try_connect():
            thief.stop()
        if harmful and client_id == victim.client_id:
            assert victim.gone.wait(60)
        else:
            assert victim.publish(END, b"still here")
            assert not victim.gone.is_set()


def test_the_programs_of_one_person_run_side_by_side(connect: Callable[..., Actor]) -> None:
    first, second = (connect("operator:alice", client_id=f"fleet-cli-{n}") for n in "12")
    for one in (first, second):
        one.subscribe("fleet/jobs/+", 1)
    connect("coordinator").publish("fleet/jobs/" + "1" * 64, b"row")
    assert [one.next()[1] for one in (first, second)] == [b"row", b"row"]


def test_nobody_gets_in_without_a_certificate_of_this_fleet(
    broker: Secured, tmp_path: Path
) -> None:
    stranger = House.make(tmp_path / "stranger")
    for port in {broker.ports.hosts, broker.ports.people}:
        for name in ("coordinator", "one", "operator:alice"):
            assert not Actor(name, broker, house=stranger, port=port).try_connect()
        assert not Actor("one", broker, port=port, anonymous=True).try_connect()
        assert not Actor("one", broker, port=port, plain=True).try_connect()


def test_mosquitto_lets_nobody_in_who_is_revoked(
    new_secured: Callable[..., Secured], connect_to: Callable[..., Actor]
) -> None:
    made = new_secured("mosquitto", people=PEOPLE, revoked=("two", "operator:bob"))
    for name in ("two", "operator:bob"):
        assert not Actor(name, made).try_connect(), name
    connect_to(made, "one")
    other = connect_to(made, "coordinator")
    made.house.revoke("one")
    made.reload()
    wait_until(lambda: not _gets_in(made, "one"), "the revoked get in")
    other.publish(END, b"still here")
    assert not other.gone.is_set()


def _gets_in(broker: Secured, name: str) -> bool:
    """Whether somebody is let in, who throws their own older connection off."""
    actor = Actor(name, broker)
    if gets_in := actor.try_connect():
        actor.stop()
    return gets_in


def test_nats_learns_on_reload_who_its_hosts_are(
    tmp_path: Path, new_secured: Callable[..., Secured], connect_to: Callable[..., Actor]
) -> None:
    made = new_secured("nats", people=PEOPLE, hosts=HOSTS)
    one, two = connect_to(made, "one"), connect_to(made, "two")
    conf = (tmp_path / "nats.conf").read_text("utf-8")
    for old, new in (('"CN=one"', '"CN=three"'), ("fleet.one.", "fleet.three.")):
        conf = conf.replace(old, new)
    (tmp_path / "nats.conf").write_text(conf, "utf-8")
    made.reload()
    assert one.gone.wait(60)
    assert not Actor("one", made).try_connect()
    connect_to(made, "three")
    two.publish(TOPICS.heartbeat("two"), b"still here")
    assert not two.gone.is_set()


def test_a_host_that_is_enrolled_later(broker: Secured) -> None:
    found = "gets in" if _gets_in(broker, "late") else "needs a new file"
    assert found == trait("a host that is enrolled later", broker.kind)


def test_a_dot_in_a_hosts_name(broker: Secured, connect: Callable[..., Actor]) -> None:
    """Where a dot parts levels there is no such topic; `fleet broker config` refuses the name."""
    watcher, coordinator = connect(WITNESS), connect("coordinator")
    watcher.subscribe("fleet/#", 1)
    coordinator.publish(TOPICS.request("pi4.attic"), b"do")
    coordinator.publish(END, b"end")
    works = (TOPICS.request("pi4.attic"), b"do") in watcher.heard_until((END, b"end"))
    assert ("works" if works else "does not work") == trait("a dot in a host's name", broker.kind)


def test_the_largest_chunk_arrives(broker: Secured, connect: Callable[..., Actor]) -> None:
    coordinator, agent = connect("coordinator"), connect("one")
    coordinator.subscribe("fleet/+/artifact/+/chunk/+")
    topic, chunk = TOPICS.chunk("one", "a" * 64, MAX_CHUNKS - 1), bytes(MAX_CHUNK_BYTES)
    agent.publish(topic, chunk, 0)
    assert coordinator.next() == (topic, chunk)
    assert trait("a chunk of 1 MiB", broker.kind) == "arrives"


@pytest.mark.parametrize(
    "kind", ["embedded", "mosquitto", "nats", pytest.param("rabbitmq", marks=pytest.mark.slow)]
)
def test_a_kill_keeps_what_was_retained(
    kind: str, tmp_path: Path, new_secured: Callable[..., Secured], connect_to: Callable[..., Actor]
) -> None:
    """But for as many changes as mosquitto's file says, and what RabbitMQ has not written yet.

    The embedded broker keeps nothing.
    """
    made = new_secured(kind, people=PEOPLE, hosts=HOSTS)
    writer = connect_to(made, "coordinator")
    count = 3 * AUTOSAVE_CHANGES
    for number in range(count):
        writer.publish(f"fleet/jobs/{number:064x}", b"row", retain=True)
    writer.stop()
    if kind == "rabbitmq":
        last = f"{count - 1:064x}".encode()
        wait_until(lambda: _is_written(tmp_path / "state", last), "the broker does not write")
    made.end(signal.SIGKILL)
    made.start()
    writer, reader = connect_to(made, "coordinator"), connect_to(made, WITNESS)
    for number in range(count):
        reader.subscribe(f"fleet/jobs/{number:064x}", 1)
    reader.subscribe(END, 1)
    writer.publish(END, b"end")
    kept = len(reader.heard_until((END, b"end")))
    if trait("retained messages, after `kill -9`", kind) == "lost":
        assert kept == 0
    else:
        assert kept >= count - AUTOSAVE_CHANGES, made.words()


def _is_written(folder: Path, text: bytes) -> bool:
    """Whether a broker has written `text` to a file of its own."""
    return any(text in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_loopback_is_served_in_plain_text_if_asked_for(
    new_secured: Callable[..., Secured], connect_to: Callable[..., Actor]
) -> None:
    made = new_secured("mosquitto", people=PEOPLE, loopback=True)
    local = Actor("one", made, "fleet-local", plain=True, port=made.ports.loopback)
    assert local.try_connect()
    local.subscribe("fleet/#", 1)
    local.publish(TOPICS.request("two"), b"do")
    assert local.next() == (TOPICS.request("two"), b"do")
    remote = connect_to(made, "one")
    remote.publish(TOPICS.request("two"), b"forged")
    remote.publish(TOPICS.heartbeat("one"), b"beat")
    assert local.next() == (TOPICS.heartbeat("one"), b"beat")
    assert not Actor("one", made, anonymous=True).try_connect()
    local.stop()
