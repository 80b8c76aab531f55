"""The operator's client of the verbs: each question waits for its answer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

from broker.client.access import host_here
from broker.clock import Now
from broker.errors import ConfigError
from broker.figures import span
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected, Incoming, LinkEvent, Outgoing
from broker.protocol.topics import Topic
from broker.system.address import IS_IT_THERE, Address, text_of
from broker.system.machine import system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.contact import USUAL_S, Unreachable
from coordinator.client.session import Session

MAX_HEARD: Final = 50_000


class OperatorClient(Session):
    """A connection to the fleet, used as a context manager.

    `watch` are further topic filters, whose messages `messages` yields. `patient`: keep trying to
    connect until the deadline, rather than give up at the first refusal.

    Where nobody has said which broker, it is whoever's that listens on this machine: `named` is
    false. Then `unnamed` is told where that is, once it is connected, and before something is
    changed there, which it may refuse by an error; without it nothing is changed.
    """

    def __init__(
        self, settings: BrokerSettings, timeout_s: float = USUAL_S, *, watch: Sequence[str] = (),
        patient: bool = False, unnamed: Callable[[Address, bool], None] | None = None,
    ) -> None:  # fmt: skip
        """Prepare; entering the context connects.

        Raises `ConfigError` for a connection that is not safe, or an identity that does not hold.
        """
        super().__init__(settings, "cli", [(topic, 1) for topic in watch], system_clock, timeout_s)
        self.named = "url" in settings.model_fields_set or self.addresses[0].tls
        self._patient = patient
        self._unnamed = unnamed
        self._turned = threading.Condition(self._lock)
        self._refusals = 0
        self._heard: deque[tuple[Topic, bytes]] = deque(maxlen=MAX_HEARD)

    def __enter__(self) -> Self:
        self.start()
        most = float("inf") if self._patient else len(self.addresses)
        with self._turned:
            self._turned.wait_for(lambda: self.connected or self._refusals >= most, self.timeout_s)
        if self.connected:
            if not self.named and self._unnamed is not None:
                self._unnamed(self.addresses[0], False)
            return self
        # Aside: a connect to a host that swallows packets takes longer to give up than we have.
        threading.Thread(target=self.stop, name="fleet-give-up", daemon=True).start()
        late = f"{text_of(self.addresses)}: no answer in {self.timeout_s:g} s"
        lost = self._contact.lost or Disconnected(late)
        if not lost.answered and "url" not in self._settings.model_fields_set:
            self._check_whose_machine()
        raise self._absence(lost)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def on_link(self, event: Connected | Disconnected, _now: Now) -> None:
        """Count refusals."""
        self._refusals += isinstance(event, Disconnected)

    def on_message(self, topic: Topic, event: Incoming, _now: Now) -> None:
        """Keep it for `messages`."""
        self._heard.append((topic, event.payload))

    def on_turn(self, _events: Sequence[LinkEvent | None], _now: Now) -> None:
        """Wake whoever waits for the connection, or for a message."""
        with self._turned:
            self._turned.notify_all()

    def ask(self, request: m.OperatorRequest) -> Any:
        """Return the data of the answer.

        Raises `NotDone` when the coordinator says no; `Unreachable` when it says nothing (sooner
        where its status says offline), with whether a command may still be done; `ConfigError` for
        an unusable key, or a command to a broker that nobody has named.
        """
        if not self.named and isinstance(request, m.Command):
            if self._unnamed is None:
                where = text_of(self.addresses)
                raise ConfigError(f"{where}: is that the fleet? say so by --broker")
            self._unnamed(self.addresses[0], True)
        return super().ask(request)

    def messages(self, wait_s: float) -> Iterator[tuple[Topic, bytes]]:
        """Yield what has come on the watched topics, waiting at most `wait_s` for the first."""
        with self._turned:
            self._turned.wait_for(lambda: self._heard, wait_s)
            heard = [*self._heard]
            self._heard.clear()
        yield from heard

    def check(self) -> None:
        """Raise `Unreachable` while there is no connection."""
        if not self.connected:
            raise self.silence()

    def grant(self, message: m.GrantMessage) -> None:
        """Tell the coordinator what is missing of the artifact that is being fetched."""
        self._link.publish(Outgoing(self.topics.download_grant(self.name), m.encode(message)))

    def send_chunk(self, index: int, data: bytes) -> None:
        """Send a span of chunks of the program that is being pushed."""
        self._link.publish(Outgoing(self.topics.push_chunk(self.name, index), data, 0))

    def silence(self) -> Unreachable:
        """Return which of the two does not answer, and what may help."""
        contact = self._contact
        if contact.lost is not None:
            return self._absence(contact.lost)
        silent = span(contact.silent_s(self._clock().mono_s))
        broker = f"the broker {text_of(self.addresses)} answers"
        nobody = f"{broker}, but no coordinator did in {silent}"
        match contact.coordinator:
            case None:
                root = self._named_root()
                return Unreachable(
                    "answer",
                    f"{nobody}{f' under {root}' if root else ''}",
                    "does one run? it may be coming back to this broker still, and its log says "
                    "what keeps it, such as a full disk; else start one with `fleet coordinator`",
                )
            case status if status.state == "online":
                return Unreachable(
                    "answer",
                    f"{broker}, but its coordinator has been silent for {silent}, though it is "
                    "online by its status",
                    "its log says what keeps it, such as a full disk; --timeout waits longer; to "
                    "start it again does no harm, what runs goes on",
                )
            case status if status.reason == "goodbye":
                how, then = "it was stopped", "start it again with `fleet coordinator`"
            case _:
                how = "its connection was lost"
                then = (
                    "it may be coming back to this broker still; else start it again with "
                    "`fleet coordinator`"
                )
        offline = f"{nobody}: it is offline ({how})"
        return Unreachable("coordinator", offline, f"what runs goes on; {then}")

    def _absence(self, lost: Disconnected) -> Unreachable:
        """Return that there is no connection, and what may help."""
        refused = "the broker answers, but does not serve this command"
        if lost.denied and (root := self._named_root()):
            return Unreachable("broker", f"{refused} under {root}", str(lost))
        if lost.answered:
            return Unreachable(
                "broker",
                f"{refused} ({lost})",
                "is it this fleet's? see --broker (with its user and password), --root and "
                "--identity, and docs/how-to/identity.md",
            )
        known = "url" in self._settings.model_fields_set or not self.addresses[0].is_loopback()
        remedy = IS_IT_THERE
        if not known:
            remedy = "is it running? start one with `fleet up`, or name yours with --broker"
        return Unreachable("broker", f"the broker is not reachable ({lost})", remedy)

    def _named_root(self) -> str:
        """Return which topic root somebody has named, and what to do if it is not the fleet's."""
        if "topic_root" not in self._settings.model_fields_set:
            return ""
        remedy = "is that the fleet's? else name its own, by --root or [broker] topic_root"
        return f"the topic root {self.topics.root!r}: {remedy}"

    def _check_whose_machine(self) -> None:
        """Raise `ConfigError` where only a host has joined: its broker is not this machine's."""
        host = None if self._settings.identity is not None else host_here()
        if host is not None:
            raise ConfigError(
                f"this machine has the identity of a host ({host}) alone, and only a person may "
                "ask: `fleet enroll operator:NAME` (or observer:NAME, who may only look) on the "
                "CA's machine and `fleet join` here, or ask there"
            )
