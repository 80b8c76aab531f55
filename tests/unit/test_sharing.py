"""What hosts say alike is read once, and nothing that any host says is read otherwise for that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.errors import BadMessage
from broker.messages import (
    CAPABILITY,
    MAX_PAYLOAD_BYTES,
    Capability,
    TrainerInfo,
    decode,
    encode,
)
from coordinator.sharing import MOST_SETS, SharedTrainers

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


def test_only_so_many_sets_are_kept() -> None:
    """Hosts that make up trainers make nothing grow."""
    shared = SharedTrainers()
    for number in range(3 * MOST_SETS):
        one = capability({"number": number})
        assert shared.read(encode(one)) == one
    assert len(shared._sets) == MOST_SETS
