"""The sessions, and what goes from one client to the others: rights, subscriptions, retained."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from broker.embedded.limits import Reason, Refusals
from broker.embedded.message import Message
from broker.embedded.packets import Code
from broker.embedded.retained import Allowance, Retained
from broker.embedded.session import Client, Session
from broker.embedded.settings import ServerSettings
from broker.embedded.subscriptions import Subscription, Subscriptions, is_deep, is_filter
from broker.protocol.acl import Rights

QUEUED_SHARE: Final = 8  # of the limit on what is queued: it is summed up after so much more


def may_publish(rights: Rights | None, topic: str) -> bool:
    """Tell whether a message to `topic`, or a will, is within the rights; none are on loopback.

    Topics that begin with `$` are the broker's own (MQTT 3.1.1, 4.7.2).
    """
    if topic.startswith("$") or is_deep(topic):
        return False
    return rights is None or rights.may_publish(topic)


class Router:
    """Knows sessions and topics, and neither sockets nor packets."""

    def __init__(self, settings: ServerSettings, now_s: Callable[[], float]) -> None:
        """`now_s` is the loop's clock."""
        self.settings = settings
        self.now_s = now_s
        self.refusals = Refusals(now_s)
        self.sessions: dict[str, Session] = {}  # those without a connection in the order they left
        self.subscriptions: Subscriptions[Session] = Subscriptions()
        self.retained = Retained(Allowance(settings.max_retained, settings.max_retained_bytes))
        self.is_stopping = False
        self._queued_bytes = 0  # since it was last summed up

    @property
    def connected(self) -> dict[str, Client]:
        """The connections by client id."""
        return {one.id: one.client for one in self.sessions.values() if one.client is not None}

    @property
    def kept(self) -> dict[str, Session]:
        """The sessions without a connection by client id, the oldest first."""
        return {one.id: one for one in self.sessions.values() if one.client is None}

    # Sessions: those of MQTT 3.1.1 end with their connection, those of MQTT 5 when they expire.

    def enter(self, client: Client) -> tuple[Session, bool]:
        """Begin a session, or take up the one that was kept; tell whether it was there before.

        An older connection of the same id ends, its will published (MQTT 3.1.1, 3.1.4-2).
        """
        old = self.sessions.get(client.asked.client_id)
        if old is not None and old.client is not None:
            old.client.end(Code.TAKEN_OVER)
            self.leave(old, old.client, goodbye=False)
            old = self.sessions.get(client.asked.client_id)
        if old is not None and (client.asked.is_clean or old.is_over):
            self._end(old)
            old = None
        session = old or Session(client, self)
        self.sessions[session.id] = session
        session.begin(client)
        return session, old is not None

    def leave(self, session: Session, client: Client, *, goodbye: bool) -> None:
        """Forget a connection; keep its session if it has asked for that, or end it."""
        if session.client is not client:
            return  # another connection has taken it over
        session.client = None
        if session.teller is not None:
            session.teller.cancel()
        if goodbye or self.is_stopping:
            session.will = None
        if not session.expiry_s or self.is_stopping:
            self._end(session)
            return
        self._make_room_for(session)
        self.sessions[session.id] = self.sessions.pop(session.id)
        now_s = self.now_s()
        session.expires_s = now_s + session.expiry_s
        session.will_due_s = min(session.expires_s, now_s + client.asked.will_delay_s)
        self.look_after_kept(now_s)

    def _make_room_for(self, session: Session) -> None:
        """End the oldest of too many sessions that are kept, of the same name or of all."""
        kept = [one for one in self.kept.values() if one is not session]
        same = [one for one in kept if one.name == session.name]
        crowded = session.name and len(same) >= self.settings.max_connections_per_name
        if crowded or len(kept) >= self.settings.max_sessions:
            oldest = same[0] if crowded else kept[0]
            self.refusals.add(Reason.CROWD, f"the session of {oldest.id!r}: too many are kept")
            self._end(oldest)

    def look_after_kept(self, now_s: float) -> None:
        """Publish the wills that are due, end the sessions and retained messages that expired."""
        for session in self.kept.values():
            if session.is_over or now_s >= session.expires_s:
                self._end(session)
            elif now_s >= session.will_due_s:
                self._publish_will(session)
        self.retained.clear_expired(now_s)

    def _end(self, session: Session) -> None:
        del self.sessions[session.id]
        session.is_over = True
        for filter_ in list(session.filters):
            self.unsubscribe(session, filter_)
        self._publish_will(session)

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        if will is not None:
            will.start_clock(self.now_s())
            self.send(will)
            if will.retain:
                self.retain(session.name, will)

    # Messages.

    def take(self, session: Session, message: Message) -> bool:
        """Pass on what a client has published; if it is outside its rights, drop it, return false.

        MQTT 3.1.1 lets the broker acknowledge it or close the connection (3.3.5-2). It stays open,
        so that the client can still send the rest.
        """
        if not self.check_rights(session, message):
            return False
        self.send(message, session)
        if message.retain:
            self.retain(session.name, message)
        return True

    def check_rights(self, session: Session, message: Message) -> bool:
        """Tell whether a client may publish a message; count it if not."""
        if may_publish(session.rights, message.topic):
            return True
        detail = f"client {session.id!r} may not publish to {message.topic!r}"
        self.refusals.add(Reason.PUBLISH, detail)
        return False

    def send(self, message: Message, sender: Session | None = None) -> None:
        """Send a message to all who have subscribed to it and may have it."""
        for session, found in self.subscriptions.matching(message.topic).items():
            rights = session.rights
            if rights is not None and not rights.may_receive(message.topic):
                continue
            by = [one for one in found if not (one.no_local and session is sender)]
            if by:
                session.send(message, by)

    def queued(self, size_bytes: int) -> None:
        """Take note that so much more may wait, for a client or of one; keep the sum bounded.

        What waits shrinks unnoticed, and 10,000 sessions take milliseconds to sum up. So that is
        done now and then, and leaves so much room that the limit holds until the next time.
        """
        limit_bytes = self.settings.max_queued_bytes
        self._queued_bytes += size_bytes
        if self._queued_bytes * QUEUED_SHARE > limit_bytes:
            self._queued_bytes = 0
            self._relieve(limit_bytes - limit_bytes // QUEUED_SHARE)

    def _relieve(self, most_bytes: int) -> None:
        """End the sessions for which most waits, until no more than `most_bytes` do in all."""
        waiting = [(one.waiting_bytes, one) for one in self.sessions.values() if not one.is_over]
        total_bytes = sum(size_bytes for size_bytes, _ in waiting)
        for size_bytes, session in sorted(waiting, key=lambda one: one[0], reverse=True):
            if total_bytes <= most_bytes:
                return
            detail = f"it has {size_bytes} of the {total_bytes} bytes that wait in all"
            self.refusals.add(Reason.MEMORY, f"client {session.id!r} was disconnected: {detail}")
            session.drop(Code.QUOTA_EXCEEDED)
            total_bytes -= size_bytes

    # Subscriptions.

    def subscribe(self, session: Session, filter_: str, subscription: Subscription) -> Code:
        """Subscribe, or return why not; the caller counts what is refused."""
        code = self._why_not(session, filter_)
        if code is Code.SUCCESS:
            self.subscriptions.add(filter_, session, subscription)
            session.filters[filter_] = subscription
        else:
            self.unsubscribe(session, filter_)
        return code

    def _why_not(self, session: Session, filter_: str) -> Code:
        if is_deep(filter_) or not is_filter(filter_):
            return Code.FILTER_INVALID
        if session.rights is not None and not session.rights.may_subscribe(filter_):
            return Code.NOT_AUTHORIZED
        if filter_ not in session.filters and len(session.filters) >= self.settings.max_filters:
            return Code.QUOTA_EXCEEDED
        return Code.SUCCESS

    def count_refused(self, session: Session, filters: Sequence[str]) -> None:
        """Count the refused filters of one SUBSCRIBE as one refusal."""
        more = f" and {len(filters) - 1} more" if len(filters) > 1 else ""
        detail = f"client {session.id!r} may not subscribe to {filters[0]!r}{more}"
        self.refusals.add(Reason.SUBSCRIBE, detail)

    def unsubscribe(self, session: Session, filter_: str) -> bool:
        """Unsubscribe; tell whether there was such a subscription."""
        self.subscriptions.remove(filter_, session)
        return session.filters.pop(filter_, None) is not None

    # Retained messages.

    def tell_retained(self, session: Session, filters: Sequence[str]) -> None:
        """Send what is retained under new filters, as fast as the client takes it."""
        session.asked.update(dict.fromkeys(filters))
        if session.asked and (session.teller is None or session.teller.done()):
            session.teller = asyncio.create_task(self._tell(session))

    async def _tell(self, session: Session) -> None:
        with contextlib.suppress(OSError):  # the client went away
            while session.asked:
                filter_ = next(iter(session.asked))
                del session.asked[filter_]
                for topic in self.retained.under(filter_):
                    if session.rights is None or session.rights.may_receive(topic):
                        await session.room()
                        self._send_retained(session, filter_, topic)

    def _send_retained(self, session: Session, filter_: str, topic: str) -> None:
        message, subscription = self.retained.get(topic), session.filters.get(filter_)
        if message is not None and subscription is not None and not message.is_over(self.now_s()):
            session.send(message, [subscription], retained=True)

    def retain(self, name: str, message: Message) -> None:
        """Retain a message for somebody; one without a payload clears what is retained there."""
        if not message.payload:
            self.retained.clear(message.topic)
        elif not self.retained.keep(name, message):
            detail = f"{name!r} has too much retained: {message.topic!r}"
            self.refusals.add(Reason.RETAINED, detail)
