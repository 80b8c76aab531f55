"""A session of MQTT 5 whose client is away, until it comes back or the session expires."""

from __future__ import annotations

from dataclasses import dataclass

from broker.embedded.outbox5 import Backlog
from broker.embedded.packets import Message
from broker.embedded.peer import Client, Gate, held_bytes
from broker.embedded.reason_codes import Code


@dataclass(eq=False, slots=True)
class Kept:
    """What a client has subscribed to, and what waits for it; both times by the loop's clock."""

    id: str
    name: str
    gate: Gate | None
    filters: dict[str, int]
    held: dict[int, Message]
    backlog: Backlog
    expires_s: float
    will: Message | None  # that is yet to be published
    will_due_s: float
    is_over: bool = False

    @classmethod
    def of(cls, client: Client, backlog: Backlog, will: Message | None, now_s: float) -> Kept:
        """Return the session of a client that has left."""
        session, expires_s = client.arrival.session, now_s + client.expiry_s
        return cls(
            client.id, client.arrival.name, client.gate, client.filters, client.held, backlog,
            expires_s, will, min(expires_s, now_s + session.will_delay_s),
        )  # fmt: skip

    @property
    def waiting_bytes(self) -> int:
        """How much is kept for it."""
        return self.backlog.size_bytes + held_bytes(self.held)

    def send(self, message: Message, grant: int) -> bool:
        """Have a message wait, unless at QoS 0; tell whether it does."""
        letter = self.backlog.address(message, grant)
        if not letter.qos or self.is_over:
            return False
        letter.message = message.kept()
        if not self.backlog.admits(letter):
            return False
        self.backlog.put(letter)
        return True

    def dismiss(self, code: Code, *, for_good: bool = True) -> None:
        """End it, as far as its memory goes; see `Client.dismiss`."""
        del code, for_good
        self.is_over = True
        self.backlog.clear()
        self.held.clear()
