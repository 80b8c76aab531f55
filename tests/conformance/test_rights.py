"""The table of rights as a real broker enforces it: every role on every topic, over TLS.

What a broker answers proves nothing: mosquitto acknowledges what it forbids. So a cell counts by
what is delivered. A publication is allowed when somebody who may read everything was sent it, a
subscription when its owner was sent anything on that topic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from broker.acl import rights_of
from broker.topics import Topics
from tests.harness import secured
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
