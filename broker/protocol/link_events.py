"""What passes between a core and its link, as values: connected, a message, disconnected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker has taken the connection, and every subscription that was asked for so far.

    `session` is new at each connection; who asks for more on one is told again, of the same one.
    """

    session: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone, or could not be made; `answered`: somebody was there, and refused.

    `denied`: that was over a subscription, so whoever connects may lack rights at the broker.
    `remedy` says what to do about it, where the link knows.
    """

    why: str
    answered: bool = False
    denied: bool = False
    remedy: str = ""

    def __str__(self) -> str:
        """Return why, and what to do about it, in a line."""
        return f"{self.why}; {self.remedy}" if self.remedy else self.why


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


class Publish(Protocol):
    """Hands messages to the link, in this order; those that are handed over together leave so."""

    def __call__(self, *messages: Outgoing) -> bool:
        """Tell whether all of them were taken."""
