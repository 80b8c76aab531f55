"""A coordinator's way into its fleet: does at the broker what `Succession` decides."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from broker.client.link import Link
from broker.errors import ConfigError
from broker.protocol.events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import Holder, encode
from broker.protocol.topics import Topics
from coordinator.service.succession import Do, Step, Succession

log = logging.getLogger("fleet.coordinator")


class Entrance(Succession):
    """Stands between a link and a shell.

    `own` is what it says while it serves, `filters` what it then hears; the link itself subscribes
    to `Topics.before_coordinator`.
    """

    def __init__(
        self, link: Link, topics: Topics, own: Holder, filters: Sequence[tuple[str, int]]
    ) -> None:
        """Begin without a connection."""
        super().__init__(topics, own)
        self._link = link
        self._filters = filters
        self._said_holder = Outgoing(topics.holder(), encode(own), 1, retain=True)
        self._echo = topics.echo("coordinator")

    def publish(self, *messages: Outgoing) -> bool:
        """Hand messages to the link, as its `publish`; false, and nothing done, unless we serve."""
        return self.serves and self._link.publish(*messages)

    def admits(self, event: Connected | Disconnected | Incoming, now_s: float) -> bool:
        """Take an event of the link (`now_s` monotonic); tell whether it is for the shell.

        Raises `ConfigError` when another coordinator serves this fleet.
        """
        return self._carry_out(self.handle(event, now_s))

    def passes(self, now_s: float) -> None:
        """Do what is due (monotonic)."""
        self._carry_out(self.on_time(now_s))

    def _carry_out(self, step: Step) -> bool:
        match step.do:
            case Do.YIELD:
                raise ConfigError(step.said)
            case Do.DROP:
                self._link.drop(step.said)
                return False
            case Do.ASK:
                self._link.publish(Outgoing(self._echo, self.word, 1))
            case Do.ENTER:
                self._link.subscribe(self._filters)
            case Do.SERVE:
                self._link.publish(self._said_holder)
        if step.said:
            log.warning("%s", step.said)
        return step.do in {Do.PASS, Do.SERVE}
