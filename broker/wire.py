"""What passes between a core and its link: plain values, so that a core imports no client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker has taken the connection and every subscription; `session` is new each time."""

    session: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone, or could not be made; `answered`: somebody was there, and refused."""

    why: str
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message from the broker."""

    topic: str
    payload: bytes
    retained: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to the broker."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


LinkEvent = Connected | Disconnected | Incoming
