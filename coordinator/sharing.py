"""What thousands of hosts say alike is read and kept once.

A capability bears the schemas of all trainers: nine tenths of its bytes, most of the time that it
takes to read, and 90 KB in memory. Those of one release of the fleet are the same on every host.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.messages import (
    CAPABILITY,
    MAX_PAYLOAD_BYTES,
    Capability,
    TrainerInfo,
    decode,
    encode,
)

MOST_SETS: Final = 32  # of trainers that are kept to share
_KEY: Final = b'"trainers":'
_NONE: Final = b'"trainers":{}'


@dataclass(frozen=True, slots=True)
class _Set:
    """A set of trainers: no other was ever given its number; `alone` if its key is in it once."""

    trainers: Mapping[str, TrainerInfo]
    number: int
    alone: bool


class SharedTrainers:
    """The sets of trainers that hosts have, as they were read and as they are written in JSON."""

    def __init__(self) -> None:
        """Start without any."""
        self._sets: dict[bytes, _Set] = {}
        self._numbers = 0

    def digest(self, payload: bytes) -> bytes:
        """Return what tells a capability's payload from every other.

        Equal ones have the same, but for those that came before their trainers were known.
        """
        cut = self._cut(payload)
        if cut is None:
            return hashlib.blake2b(payload, digest_size=16).digest()
        rest, known = cut
        return hashlib.blake2b(rest, digest_size=16, salt=known.number.to_bytes(16)).digest()

    def read(self, payload: bytes) -> Capability:
        """Return the capability in `payload`; equal trainers are one object. Raises `BadMessage`.

        A quotation mark within a string is escaped, so what looks like the key is one. Where it is
        another object's, the host has said of itself what is known of others, as it might have in
        the usual place. What is kept is only what we would write ourselves: no host can have
        another's words taken otherwise.
        """
        cut = self._cut(payload)
        if cut is not None:
            rest, known = cut
            return decode(CAPABILITY, rest).model_copy(update={"trainers": known.trainers})
        if len(payload) > MAX_PAYLOAD_BYTES or payload.count(_KEY) != 1:
            return decode(CAPABILITY, payload)
        return self.share(decode(CAPABILITY, payload))

    def share(self, capability: Capability) -> Capability:
        """Return a capability that was read by other means, with trainers that are shared."""
        text = _written(encode(capability))
        known = self._sets.get(text)
        if known is None:
            self._numbers += 1
            known = _Set(capability.trainers, self._numbers, text.count(_KEY) == 1)
            self._sets[text] = known
        while len(self._sets) > MOST_SETS:
            del self._sets[next(iter(self._sets))]
        return capability.model_copy(update={"trainers": known.trainers})

    def _cut(self, payload: bytes) -> tuple[bytes, _Set] | None:
        """Return a payload without its trainers, and these, if they are known and stand alone.

        They are compared where the key is: to look for 13 KB anywhere takes twenty times as long.
        """
        at = payload.find(_KEY)
        if at < 0 or len(payload) > MAX_PAYLOAD_BYTES:
            return None
        for text, known in self._sets.items():
            end = at + len(text)
            if payload.startswith(text, at):
                is_one = known.alone and payload.find(_KEY, end) < 0
                return (payload[:at] + _NONE + payload[end:], known) if is_one else None
        return None


def _written(payload: bytes) -> bytes:
    """Return the trainers as they stand in a capability that we have encoded, with their key."""
    begin = payload.index(_KEY)
    value = payload[begin + len(_KEY) :].decode("latin-1")  # a character a byte
    _, length = json.JSONDecoder().raw_decode(value)
    return payload[begin : begin + len(_KEY) + length]
