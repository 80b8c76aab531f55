"""Keeps a client connected to a broker, each connection with a session id and a will that has it.

A late will of an old session cannot end a newer one. Nothing is carried over from one connection
to the next: the service publishes its birth on `Connected`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Final

from broker.client.connection import CONNECT_TIMEOUT_S, Connection, Inbox, LinkSettings
from broker.clock import backoff_s
from broker.protocol.link_events import Connected, Outgoing
from broker.system.machine import new_id

__all__ = ["Link", "LinkSettings"]

GOODBYE_TIMEOUT_S: Final = 3.0
MOST_QOS: Final = 1  # that any broker has
STEADY_S: Final = 10.0  # a connection that lasted so long was a good one
SHORT_LIVED: Final = 3
LOOK_S: Final = 1.0  # between two looks for another certificate


class Link:
    """Keeps a connection to the broker and feeds what arrives into a mailbox.

    `will(session)` gives the last will of a session.
    """

    def __init__(
        self,
        settings: LinkSettings,
        inbox: Inbox,
        will: Callable[[str], Outgoing] | None = None,
    ) -> None:
        self._settings = settings
        self._inbox = inbox
        self._will = will
        self._rng = random.Random()  # noqa: S311 - jitter, no secret
        self._stopping = threading.Event()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="fleet-link", daemon=True)

    def start(self) -> None:
        """Start connecting; `Connected` or `Disconnected` tells how it went."""
        self._thread.start()

    def publish(self, *messages: Outgoing) -> bool:
        """Send messages, in this order; false when there is no connection or its queue is full."""
        connection = self._connection
        return connection is not None and connection.publish(messages)

    def subscribe(self, filters: Sequence[tuple[str, int]]) -> None:
        """Ask for more on the present connection; its next `Connected` tells that it is granted."""
        connection = self._connection
        if connection is not None:
            connection.subscribe(filters)

    def drop(self, why: str) -> None:
        """End the present connection, for the next one to be made."""
        connection = self._connection
        if connection is not None:
            connection.drop(why)

    def stop(self, goodbye: Sequence[Outgoing] = ()) -> None:
        """Publish `goodbye`, wait a little for it to leave, disconnect and end the thread."""
        connection = self._connection
        if connection is not None:
            connection.publish(goodbye)
            connection.drain(GOODBYE_TIMEOUT_S)
        self._stopping.set()
        connection = self._connection  # there may be another by now
        if connection is not None:
            connection.close()
        if self._thread.is_alive():
            self._thread.join(CONNECT_TIMEOUT_S + 5)

    def _run(self) -> None:
        failures = short_lived = 0
        most_qos = MOST_QOS
        addresses = cycle(self._settings.addresses)
        while not self._stopping.is_set():
            session, mark = new_id(), self._mark()
            address = next(addresses)
            connection = Connection(
                self._settings, address, most_qos, session, self._inbox, self._will
            )
            lost = connection.open(self._stopping)
            # NATS may refuse QoS 1 while a node of its cluster is missing; QoS 0 will do.
            most_qos = 0 if connection.asked else most_qos
            cap_s = self._settings.backoff_cap_s
            if lost is None:
                most_qos = MOST_QOS
                begun_s = time.monotonic()
                self._connection = connection
                if self._stopping.is_set():  # `stop` has not seen this connection
                    connection.close()
                    break
                self._inbox(Connected(session))
                lost = connection.wait_closed()
                short_lived += 1
                if time.monotonic() - begun_s > STEADY_S:
                    failures = short_lived = 0  # two of one name throw each other off at once
                if not lost.denied:
                    cap_s = min(cap_s, self._settings.return_cap_s)
                    if short_lived >= SHORT_LIVED:
                        lost = replace(lost, remedy=self._twin())
            self._connection = None
            connection.close()
            if self._stopping.is_set():
                break
            self._inbox(lost)
            pause_s = backoff_s(
                failures // len(self._settings.addresses),  # each is tried before longer waits
                self._settings.backoff_base_s,
                cap_s,
                self._rng,
            )
            failures = 0 if self._pause(pause_s, mark) else failures + 1

    def _mark(self) -> object:
        return None if self._settings.mark is None else self._settings.mark()

    def _pause(self, pause_s: float, mark: object) -> bool:
        """Wait; return true early when the certificate has been replaced since `mark`."""
        step_s = pause_s if self._settings.mark is None else LOOK_S
        end_s = time.monotonic() + pause_s
        while (left_s := end_s - time.monotonic()) > 0:
            if self._stopping.wait(min(left_s, step_s)):
                break
            if self._mark() != mark:
                return True
        return False

    def _twin(self) -> str:
        """Say what it may be when the broker ends one connection after the other."""
        name = self._settings.client_id.rpartition("/")[2]
        if self._settings.if_twin:
            return self._settings.if_twin
        remedy = "give one of them another --host"
        if self._settings.tls is not None:
            remedy = "each needs a certificate of its own, `fleet enroll` another name"
        return f"does another program connect as {name!r}, too? {remedy}"
