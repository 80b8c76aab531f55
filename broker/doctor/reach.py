"""Checks of the broker: reachable, and lets a program of the fleet do its work.

Each step is one finding; after one that fails there is none. Every wait has a deadline.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from broker.client.access import Access, open_access
from broker.client.link import Link
from broker.doctor.checks import STEP_S
from broker.doctor.findings import Finding, Level, fail, ok, warn
from broker.errors import BadMessage, BadTopic, ConfigError, plain
from broker.pki.identity import DAY_S, HOW_TO_GET
from broker.protocol.acl import REWRITE_RIGHTS
from broker.protocol.link_events import Connected, Disconnected, Incoming, LinkEvent, Outgoing
from broker.protocol.messages import STATUS, decode
from broker.protocol.topic_table import Kind, Role
from broker.protocol.topics import Topics, is_host
from broker.system.address import Address
from broker.system.deadline import within
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings

WARN_DAYS: Final = 30
CONNECT_S: Final = 12.0  # a link gives up after 10
_BARE: Final = "if it wants a user and a password, write mqtt://USER:PASSWORD@HOST"
_WRONG: Final = "see that the user and the password in the address are right"


@dataclass(slots=True)
class Answers:
    """What came back from the broker; `online` holds hosts, and `coordinator`."""

    lost: Disconnected | None = None
    round_trip_s: float | None = None
    holds: bool | None = None  # a word in the coordinator's own topic came back; none: not tried
    online: set[str] = field(default_factory=set)


def check_address(address: Address) -> Iterator[Finding]:
    """Resolve the name, and see whether somebody listens there."""
    where = f"{address.host}:{address.port}"
    try:
        found = within(STEP_S, lambda: socket.getaddrinfo(address.host, address.port))
    except (OSError, UnicodeError) as error:
        remedy = "correct [broker] url, or the name service"
        yield fail("broker", f"{address.host} does not resolve: {plain(error)}", remedy)
        return
    numbers = sorted({str(one[4][0]) for one in found})
    try:
        socket.create_connection((address.host, address.port), STEP_S).close()
    except TimeoutError:
        remedy = "is the address right, does a firewall stand between?"
        yield fail("broker", f"{where}: no answer in {STEP_S:.0f} s", remedy)
    except OSError as error:
        remedy = "start the broker there, or name yours: --broker, [broker] url"
        yield fail("broker", f"{where}: {plain(error)}", remedy)
    else:
        yield ok("broker", f"{where} takes connections ({', '.join(numbers)})")


def check_identity(access: Access, now_s: float) -> Finding:
    """Report as whom one connects, and when that ends; `now_s` since the epoch."""
    identity = access.identity
    if identity is None:
        return ok("identity", "none is needed: this broker is on this machine, or trusted")
    left_days = (identity.ends_s - now_s) / DAY_S
    text = f"{identity.name}, for {left_days:.0f} more days"
    if left_days < WARN_DAYS:
        return warn("identity", text, _renewal(identity.name))
    return ok("identity", text)


def _renewal(name: str) -> str:
    if name == "coordinator":
        return "`fleet init` on the CA's machine renews it"
    by_hand = f"renew it: `fleet enroll {name} --replace` on the CA's machine and `fleet join` here"
    return f"a running agent renews it by itself; else {by_hand}" if is_host(name) else by_hand


def check_session(
    access: Access,
    settings: BrokerSettings,
    name: str,
    beside: Callable[[str], Iterable[Finding]] | None = None,
) -> Iterator[Finding]:
    """Connect under a client id of its own, publish to `name`'s topic, and wait for the echo.

    `name` is a host, or `coordinator`; a certificate's counts. Also reports who of that name is
    online already, and to a host whether a coordinator is. `beside` is given where the program
    itself runs here, and checks its session: a broker that takes client ids from certificates would
    end that.
    """
    name = name if access.identity is None else access.identity.name
    if beside is not None and access.identity is not None:
        yield from beside(name)
        return
    answers = _ask(access, settings, name)
    if answers.round_trip_s is None:
        lost = answers.lost
        yield no_session(lost, name, access.addresses[0]) if lost else _no_echo(name)
        return
    yield ok("session", f"a message went and came back in {answers.round_trip_s * 1000:.0f} ms")
    if answers.holds is not None:
        yield _rights(answers, Topics(settings.topic_root).holder())
    if name in answers.online and beside is None:
        what, other = f"another agent called {name!r}", "another name (--host) or topic root"
        if name == "coordinator":
            what, other = "another coordinator", "another topic root"
        remedy = f"stop that one, or give this one {other} (--root)"
        yield warn("name", f"{what} is online at this broker", remedy)
    if name != "coordinator" and "coordinator" in answers.online:
        yield ok("coordinator", "is online")
    elif name != "coordinator":
        remedy = "start one, or look at its log; jobs come once it is there"
        yield warn("coordinator", "none is online at this broker", remedy)


def no_session(lost: Disconnected, name: str, address: Address | None = None) -> Finding:
    """Report why `name` has no session with the broker at `address`, as its link tells it."""
    remedy = (
        f"see that the broker admits {name!r}: docs/how-to/identity.md, docs/reference/brokers.md"
    )
    if not lost.answered:
        remedy = "does an MQTT broker listen at that address and port? docs/reference/brokers.md"
    elif address is not None:
        remedy = f"{_BARE if address.user is None else _WRONG}; else {remedy}"
    return fail("rights" if lost.denied else "session", lost.why, lost.remedy or remedy)


def _no_echo(name: str) -> Finding:
    return fail(
        "session",
        f"connected, but a message to itself did not come back in {STEP_S:.0f} s",
        f"give {name!r} the rights of docs/reference/protocol.md: a broker does not say what it "
        "denies",
    )


def check_addresses(access: Access) -> Generator[Finding, None, tuple[Address, ...]]:
    """Check each address; return those where somebody listens. Of a cluster, one will do."""
    found = {address: list(check_address(address)) for address in access.addresses}
    reached = tuple(one for one in found if found[one][-1].level is Level.OK)
    for finding in (one for findings in found.values() for one in findings):
        is_spare = reached and finding.level is Level.FAIL
        yield replace(finding, level=Level.WARN) if is_spare else finding
    return reached


def check_broker(
    settings: BrokerSettings,
    accepts: frozenset[Role],
    session: Callable[[Access], Iterable[Finding]],
    name: str | None = None,
) -> Iterator[Finding]:
    """Check the way to the broker, and then the `session` on it; the rest as in `open_access`."""
    now_s = system_clock().wall_s
    try:
        access = open_access(settings, accepts, now_s, name)
    except ConfigError as error:
        yield fail("identity", error.wrong, error.remedy or HOW_TO_GET)
        return
    yield check_identity(access, now_s)
    if reached := (yield from check_addresses(access)):
        yield from session(replace(access, addresses=reached))


def _rights(answers: Answers, topic: str) -> Finding:
    """Report whether the coordinator may say that it holds the fleet: P9 of protocol.md."""
    if answers.holds:
        return ok("rights", f"a word in {topic} went and came back")
    if answers.lost:
        return fail("rights", f"{answers.lost.why}, after a word in {topic}", REWRITE_RIGHTS)
    text = f"a word in {topic} did not come back: two coordinators would not know of each other"
    return warn("rights", text, REWRITE_RIGHTS)


def _ask(access: Access, settings: BrokerSettings, name: str) -> Answers:
    topics = Topics(settings.topic_root)
    events: queue.SimpleQueue[LinkEvent] = queue.SimpleQueue()
    filters = {topics.echo(name): 0, topics.status(name): 1, topics.coordinator_status(): 1}
    if name == "coordinator":
        filters[topics.holder()] = 0
    client_id = topics.client_id(f"doctor-{new_id()[:12]}")
    link = Link(access.link(client_id, [*filters.items()]), events.put)
    link.start()
    try:
        return _talk(link, events, topics, name)
    finally:
        # On a thread: to give up a connection attempt may take longer than anybody waits here.
        ending = threading.Thread(target=link.stop, name="fleet-doctor-end", daemon=True)
        ending.start()
        ending.join(1.0)


def _talk(link: Link, events: queue.SimpleQueue[LinkEvent], topics: Topics, name: str) -> Answers:
    answers = Answers()
    word = new_id().encode()
    sent_s = 0.0
    deadline_s = time.monotonic() + CONNECT_S
    while (left_s := deadline_s - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left_s)
        except queue.Empty:
            break
        match event:
            case Disconnected():
                answers.lost = event
                return answers
            case Connected():
                sent_s = time.monotonic()
                deadline_s = sent_s + STEP_S
                link.publish(Outgoing(topics.echo(name), word, 0))
            case Incoming(topic, payload) if payload == word and topic == topics.holder():
                answers.holds = True
                return answers
            case Incoming(_, payload) if payload == word:
                answers.round_trip_s = time.monotonic() - sent_s
                if name != "coordinator":
                    return answers
                answers.holds = False
                deadline_s = time.monotonic() + STEP_S
                link.publish(Outgoing(topics.holder(), word, 0))
            case Incoming():
                _note(event, topics, answers)
    if not sent_s:
        answers.lost = Disconnected(f"no answer to the connection in {CONNECT_S:.0f} s")
    return answers


def _note(event: Incoming, topics: Topics, answers: Answers) -> None:
    """Record who is online from retained messages."""
    try:
        topic = topics.parse(event.topic)
        if topic.kind not in {Kind.STATUS, Kind.COORDINATOR_STATUS}:
            return
        status = decode(STATUS, event.payload)
    except (BadTopic, BadMessage):
        return
    who = topic.host or "coordinator"
    if status.state == "online":
        answers.online.add(who)
    else:
        answers.online.discard(who)
