"""What hosts say alike is read once, and nothing that any host says is read otherwise for that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.client.mailbox import Mailbox, feed
from broker.errors import BadMessage
from broker.protocol.events import Connected, Incoming, LinkEvent
from broker.protocol.messages import (
    CAPABILITY,
    MAX_PAYLOAD_BYTES,
    Capability,
    TrainerInfo,
    decode,
    encode,
)
from broker.protocol.topics import Topics
from coordinator.jobs.sharing import MOST_SETS, Cut, SharedTrainers, Shortened

SCHEMA = {"properties": {"lr": {"maximum": 1, "description": 'a "quoted" wörd }'}}}


def capability(schema: Any = SCHEMA, **fields: Any) -> Capability:
    """What a host is."""
    known: dict[str, Any] = {
        "session": "s", "instance": "i", "os": "o", "arch": "a", "python": "3",
        "physical_cores": 4, "ram_total_bytes": 8, "ram_available_bytes": 6,
        "trainers": {"gbt": TrainerInfo(hyper_schema=schema)},
    }  # fmt: skip
    return Capability(**(known | fields))


def test_equal_trainers_are_one_object_and_the_rest_is_each_hosts_own() -> None:
    """However many hosts say the same."""
    shared = SharedTrainers()
    said = [capability(physical_cores=n + 1, description='}{"trainers":{}') for n in range(3)]
    read = [shared.read(encode(one)) for one in said]
    assert read == said
    assert len({id(one.trainers) for one in read}) == 1
    other = shared.read(encode(capability({})))
    assert other == capability({})
    assert shared.read(encode(said[0])).trainers is read[0].trainers
    assert shared.share(said[1]) == said[1]
    assert shared.share(said[1]).trainers is read[0].trainers
    alike = [shared.share(capability({"b": 1})) for _ in range(2)]
    assert alike[0].trainers is alike[1].trainers


def test_a_digest_tells_every_capability_from_others() -> None:
    """Those that differ in their trainers alone, too; the same words have the same."""
    shared = SharedTrainers()
    said = [encode(capability(trainers={})), *(encode(capability({"n": n})) for n in range(3))]
    said += [encode(capability({"n": 1}, physical_cores=5)), _twice(said[1]), b"", b"{}"]
    for _ in range(2):
        assert len({shared.digest(payload) for payload in said}) == len(said)
        for payload in said[1:5]:
            shared.read(payload)
    assert shared.digest(said[1]) == shared.digest(bytes(bytearray(said[1])))


def _spaced(payload: bytes) -> bytes:
    return json.dumps(json.loads(payload), indent=1).encode()


def _twice(payload: bytes) -> bytes:
    return payload[:-1] + b',"trainers":{"cnn":{"hyper_schema":{}}}}'


def _inside(payload: bytes) -> bytes:
    return b'{"more":{"trainers":{"mlp":{"hyper_schema":{}}}},' + payload[1:]


def _before(payload: bytes) -> bytes:
    return b'{"trainers":{"mlp":{"hyper_schema":{}}},' + payload[1:]


@pytest.mark.parametrize("odd", [_spaced, _twice, _inside, _before])
def test_what_others_write_is_read_as_it_stands(odd: Any) -> None:
    """Spaces, a key that comes twice, one of the same name elsewhere: as without sharing."""
    shared = SharedTrainers()
    shared.read(encode(capability()))
    payload = odd(encode(capability()))
    assert shared.read(payload) == decode(CAPABILITY, payload)
    assert shared.read(payload) == decode(CAPABILITY, payload)


@pytest.mark.parametrize("odd", [_twice, _inside, _before])
def test_no_host_has_anothers_words_taken_otherwise(odd: Any) -> None:
    """Though it says the same in another place, and first."""
    shared = SharedTrainers()
    for trainers in ({"cnn": TrainerInfo(hyper_schema={})}, {"mlp": TrainerInfo(hyper_schema={})}):
        shared.read(odd(encode(capability())))
        shared.read(encode(capability(trainers={})).replace(b'"trainers":{}', b'"more":{}'))
        nested = encode(capability(trainers=trainers))
        shared.read(nested.replace(b'"trainers":', b'"more":{"trainers":') + b"}")
        assert shared.read(nested) == capability(trainers=trainers)


@pytest.mark.parametrize(
    "bad", [b"", b"{}", b'"trainers":', b'{"trainers":{}}', b'{"trainers":', b"\xff" * 9]
)
def test_garbage_is_refused_and_teaches_nothing(bad: bytes) -> None:
    """Also with trainers in it that are known."""
    shared = SharedTrainers()
    good = encode(capability())
    shared.read(good)
    larger = good.ljust(MAX_PAYLOAD_BYTES + 1)
    for payload in (bad, good[:-1], larger, good.replace(b'"os":"o"', b'"os":1')):
        with pytest.raises(BadMessage):
            shared.read(payload)
    assert shared.read(good) == capability()


def test_births_that_wait_to_be_read_leave_out_what_is_known() -> None:
    """Of thousands of hosts they would be 14 KB each; what is read, and told apart, is the same."""
    shared, mailbox = SharedTrainers(), Mailbox[LinkEvent]()
    put = feed(mailbox, Topics(), shared.shorten)
    large = capability({"description": "x" * 13_000})
    said = [encode(large.model_copy(update={"physical_cores": n + 1})) for n in range(20)]
    shared.read(encode(capability({"other": 1})))
    for n, one in enumerate(said):
        put(Incoming(f"fleet/h{n}/capability", one, True))
    came = [event for event in mailbox.take(0) if isinstance(event, Shortened)]
    assert [(event.topic, event.retained) for event in came] == [
        (f"fleet/h{n}/capability", True) for n in range(20)
    ]
    assert sum(len(event.payload) for event in came) < len(said[0])
    for number in range(MOST_SETS):
        shared.read(encode(capability({"number": number})))
    for event, payload in zip(came, said, strict=True):
        assert shared.read(event.cut) == decode(CAPABILITY, payload), "though it is forgotten"
    assert len({shared.digest(event.cut) for event in came}) == len(came)


@pytest.mark.parametrize("odd", [_spaced, _twice, _inside, _before])
def test_what_is_not_just_so_waits_as_it_came(odd: Any) -> None:
    """And so does what is no capability, or is too large to be one."""
    shared = SharedTrainers()
    good = encode(capability())
    shared.read(good)
    larger = good.ljust(MAX_PAYLOAD_BYTES + 1)
    for event in (
        Connected("s"), Incoming("fleet/h/heartbeat", good), Incoming("fleet/h/capability", larger),
        Incoming("fleet/h/capability", odd(encode(capability({"other": 1})))),
    ):  # fmt: skip
        assert shared.shorten(event) is event
    event = Incoming("fleet/h/capability", good)
    assert shared.digest(good) == shared.digest(_cut(shared.shorten(event)))


def _cut(event: LinkEvent) -> Cut:
    assert isinstance(event, Shortened)
    return event.cut


def test_only_so_many_sets_are_kept() -> None:
    """Hosts that make up trainers make nothing grow."""
    shared = SharedTrainers()
    for number in range(3 * MOST_SETS):
        one = capability({"number": number})
        assert shared.read(encode(one)) == one
    assert len(shared._known) == MOST_SETS
