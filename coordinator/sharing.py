"""What thousands of hosts say alike is read and kept once.

A capability bears the schemas of all trainers: nine tenths of its bytes, most of the time that it
takes to read, and 90 KB in memory. Those of one release of the fleet are the same on every host.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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


def digest(payload: bytes) -> bytes:
    """Return what tells a payload from every other."""
    return hashlib.blake2b(payload, digest_size=16).digest()


class SharedTrainers:
    """The sets of trainers that hosts have, as they were read and as they are written in JSON."""

    def __init__(self) -> None:
        """Start without any."""
        self._sets: dict[bytes, Mapping[str, TrainerInfo]] = {}

    def read(self, payload: bytes) -> Capability:
        """Return the capability in `payload`; equal trainers are one object. Raises `BadMessage`.

        A quotation mark within a string is escaped, so what looks like the key is one. Where it is
        another object's, the host has said of itself what is known of others, as it might have in
        the usual place. What is kept is only what we would write ourselves: no host can have
        another's words taken otherwise.
        """
        if len(payload) > MAX_PAYLOAD_BYTES or payload.count(_KEY) != 1:
            return decode(CAPABILITY, payload)
        known = next((text for text in self._sets if text in payload), None)
        if known is None:
            return self.share(decode(CAPABILITY, payload))
        capability = decode(CAPABILITY, payload.replace(known, _NONE))
        return capability.model_copy(update={"trainers": self._sets[known]})

    def share(self, capability: Capability) -> Capability:
        """Return a capability that was read by other means, with trainers that are shared."""
        text = _written(encode(capability))
        trainers = self._sets.setdefault(text, capability.trainers)
        while len(self._sets) > MOST_SETS:
            del self._sets[next(iter(self._sets))]
        return capability.model_copy(update={"trainers": trainers})


def _written(payload: bytes) -> bytes:
    """Return the trainers as they stand in a capability that we have encoded, with their key."""
    begin = payload.index(_KEY)
    value = payload[begin + len(_KEY) :].decode("latin-1")  # a character a byte
    _, length = json.JSONDecoder().raw_decode(value)
    return payload[begin : begin + len(_KEY) + length]
