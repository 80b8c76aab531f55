"""What thousands of hosts say alike is read and kept once.

A capability bears the schemas of all trainers: nine tenths of its bytes, most of the time that it
takes to read, and 90 KB in memory. Those of one release of the fleet are the same on every host.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from broker.errors import BadMessage
from broker.protocol.events import Incoming, LinkEvent
from broker.protocol.messages import (
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
_TOPIC: Final = "/capability"


@dataclass(frozen=True, slots=True)
class _Set:
    """A set of trainers: no other was ever given its number; `alone` if its key is in it once."""

    trainers: Mapping[str, TrainerInfo]
    number: int
    alone: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """A capability's payload without its trainers, and these."""

    rest: bytes
    known: _Set


@dataclass(frozen=True, slots=True)
class Shortened(Incoming):
    """A capability that came with trainers that are known; its payload is the rest."""

    known: _Set = field(kw_only=True)

    @property
    def cut(self) -> Cut:
        """What there was to read."""
        return Cut(self.payload, self.known)


class SharedTrainers:
    """The sets of trainers that hosts have, as they were read and as they are written in JSON."""

    def __init__(self) -> None:
        """Start without any."""
        # By how they are written. Replaced and never changed: another thread may be at it. Of what
        # two learn at once, one may be forgotten, and is learnt again.
        self._known: tuple[tuple[bytes, _Set], ...] = ()
        self._numbers = count(1)

    def shorten(self, event: LinkEvent) -> LinkEvent:
        """Return a capability without its trainers, which are learnt, and other events as they are.

        Those of thousands of hosts may wait to be read. Any thread may call.
        """
        if not isinstance(event, Incoming) or not event.topic.endswith(_TOPIC):
            return event
        cut = self._cut(event.payload)
        if isinstance(cut, bytes):
            with suppress(BadMessage):
                self.read(cut)
            cut = self._cut(cut)
        if isinstance(cut, bytes):
            return event
        return Shortened(event.topic, cut.rest, event.retained, known=cut.known)

    def digest(self, said: bytes | Cut) -> bytes:
        """Return what tells a capability's payload from every other.

        Equal ones have the same, but for those that came before their trainers were known.
        """
        cut = self._cut(said)
        if isinstance(cut, bytes):
            return hashlib.blake2b(cut, digest_size=16).digest()
        salt = cut.known.number.to_bytes(16)
        return hashlib.blake2b(cut.rest, digest_size=16, salt=salt).digest()

    def read(self, said: bytes | Cut) -> Capability:
        """Return the capability of a payload; equal trainers are one object. Raises `BadMessage`.

        A quotation mark within a string is escaped, so what looks like the key is one. Where it is
        another object's, the host has said of itself what is known of others, as it might have in
        the usual place. What is kept is only what we would write ourselves: no host can have
        another's words taken otherwise.
        """
        cut = self._cut(said)
        if not isinstance(cut, bytes):
            trainers = cut.known.trainers
            return decode(CAPABILITY, cut.rest).model_copy(update={"trainers": trainers})
        if len(cut) > MAX_PAYLOAD_BYTES or cut.count(_KEY) != 1:
            return decode(CAPABILITY, cut)
        return self.share(decode(CAPABILITY, cut))

    def share(self, capability: Capability) -> Capability:
        """Return a capability that was read by other means, with trainers that are shared."""
        text = _written(encode(capability))
        known = next((one for written, one in self._known if written == text), None)
        if known is None:
            known = _Set(capability.trainers, next(self._numbers), text.count(_KEY) == 1)
            self._known = (*self._known, (text, known))[-MOST_SETS:]
        return capability.model_copy(update={"trainers": known.trainers})

    def _cut(self, said: bytes | Cut) -> bytes | Cut:
        """Return a payload without its trainers, if they are known and stand alone.

        They are compared where the key is: to look for 13 KB anywhere takes twenty times as long.
        """
        if not isinstance(said, bytes) or len(said) > MAX_PAYLOAD_BYTES:
            return said
        at = said.find(_KEY)
        for text, known in self._known if at >= 0 else ():
            end = at + len(text)
            if said.startswith(text, at):
                is_one = known.alone and said.find(_KEY, end) < 0
                return Cut(said[:at] + _NONE + said[end:], known) if is_one else said
        return said


def _written(payload: bytes) -> bytes:
    """Return the trainers as they stand in a capability that we have encoded, with their key."""
    begin = payload.index(_KEY)
    value = payload[begin + len(_KEY) :].decode("latin-1")  # a character a byte
    _, length = json.JSONDecoder().raw_decode(value)
    return payload[begin : begin + len(_KEY) + length]
