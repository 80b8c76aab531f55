"""How long heartbeats, job requests and operators wait while an artifact is on its way."""

from __future__ import annotations

import time
from typing import Any, ClassVar, Final

from broker.client.link import Link, LinkSettings
from broker.client.mailbox import Mailbox, feed
from broker.protocol.link_events import Incoming, LinkEvent, Outgoing
from broker.protocol.messages import AskShow, Cancel, encode
from broker.protocol.topic_table import Kind
from broker.protocol.topics import LOCAL_USER, Topics
from broker.system.address import parse_addresses
from broker.system.machine import new_id
from tests.harness.fleet import Fleet

EVERY_S: Final = 0.02
NO_JOB: Final = "0" * 64
HEARTBEAT_S: Final = 0.2


class Probe:
    """Asks the agent that uploads, and the coordinator that takes it, and counts until they answer.

    `waits_s`: of a job request (a `cancel` of what the agent does not have) until its answer is
    here, of an operator's question likewise, and by how much heartbeats came late after another.
    """

    KINDS: ClassVar = ("job request", "operator's question", "heartbeat")

    def __init__(self, fleet: Fleet, host: str) -> None:
        """Connect."""
        self._topics, self._host = Topics(fleet.root), host
        self._client = f"{LOCAL_USER}/probe"
        self.waits_s: dict[str, list[float]] = {kind: [] for kind in self.KINDS}
        self._asked: dict[str, tuple[str, float]] = {}
        self._due_s = self._beat_s = 0.0
        self._mailbox: Mailbox[LinkEvent] = Mailbox()
        topics = self._topics
        filters = [
            (topics.response(host), 1),
            (topics.heartbeat(host), 0),
            (topics.operator_response(self._client), 1),
        ]
        self._link = Link(
            LinkSettings(parse_addresses(fleet.broker_url), "probe", filters),
            feed(self._mailbox, topics),
        )
        self._link.start()

    def turn(self) -> None:
        """Ask, if it is time, and take what has come."""
        for event in self._mailbox.take(0.001):
            if isinstance(event, Incoming):
                self._take(event, time.monotonic())
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + EVERY_S
        topics = self._topics
        cancel = Cancel(id=new_id(), job_id=NO_JOB, attempt=1)
        self._ask("job request", topics.request(self._host), cancel)
        question = AskShow(id=new_id(), job=self._host)
        self._ask("operator's question", topics.operator_request(self._client), question)

    def close(self) -> None:
        """Disconnect."""
        self._link.stop()

    def _ask(self, kind: str, topic: str, message: Any) -> None:
        self._asked[message.id] = (kind, time.monotonic())
        self._link.publish(Outgoing(topic, encode(message)))

    def _take(self, event: Incoming, now_s: float) -> None:
        if self._topics.parse(event.topic).kind is Kind.HEARTBEAT:
            if self._beat_s:
                self.waits_s["heartbeat"].append(max(0.0, now_s - self._beat_s - HEARTBEAT_S))
            self._beat_s = now_s
            return
        for message_id, (kind, asked_s) in list(self._asked.items()):
            if message_id.encode() in event.payload:
                self.waits_s[kind].append(now_s - asked_s)
                del self._asked[message_id]
