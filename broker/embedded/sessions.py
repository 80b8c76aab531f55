"""Who comes and who goes: one connection of a client id at a time, and what is kept between two."""

from __future__ import annotations

from broker.embedded.kept import Kept
from broker.embedded.limits import Reason
from broker.embedded.outbox import Outbox
from broker.embedded.outbox5 import Backlog, Outbox5, Window
from broker.embedded.packets import Message
from broker.embedded.peer import Arrival, Client
from broker.embedded.reason_codes import Code
from broker.embedded.routing import Distribution


class Sessions(Distribution):
    """The part of the broker that begins sessions and ends them.

    Sessions of MQTT 3.1.1 end with their connection; those of MQTT 5 when they expire.
    """

    _stopping = False

    async def let_in(self, arrival: Arrival) -> tuple[Client, bool]:
        """Make a session, or take up the one that was kept; tell whether it was there before.

        A connection with the same id ends first, its will published. Replaces: amqtt leaves the old
        connection open and publishes no will. MQTT 3.1.1 has the broker disconnect it (3.1.4-2),
        and publish the will of every connection that ends without a DISCONNECT (3.1.2.5).
        """
        session = arrival.session
        while (old := self._clients.get(session.client_id)) is not None:
            old.dismiss(Code.TAKEN_OVER)
            await old.ended.wait()
        kept = self._kept.get(session.client_id)
        if kept is not None and (session.is_clean or kept.is_over):
            self._end(kept)
            kept = None
        backlog = kept.backlog if kept is not None else None
        client = Client(arrival, self._outbox(arrival, backlog), self._loop.time())
        self._clients[client.id] = client
        if kept is not None:
            del self._kept[kept.id]
            client.held = kept.held
            self._pass_on(kept, client)
        return client, kept is not None

    def _outbox(self, arrival: Arrival, backlog: Backlog | None) -> Outbox:
        session = arrival.session

        def slow() -> None:
            detail = f"client {session.client_id!r} does not keep up with its messages"
            self._refusals.add(Reason.SLOW, detail)

        def large(size_bytes: int) -> None:
            most = f"takes no packet of {size_bytes} bytes: it has said so"
            self._refusals.add(Reason.OVERSIZE, f"client {session.client_id!r} {most}")

        all_have = arrival.wire, self._settings, self._mail, self.queued, slow
        if session.level == 4:
            return Outbox(*all_have)
        window = Window(session.receive_maximum, session.max_packet_bytes, session.expiry_s > 0)
        backlog = backlog or Backlog(self._settings, self.queued, slow)
        return Outbox5(*all_have, large, window, backlog, self._loop.time)

    def part(self, client: Client, *, goodbye: bool) -> None:
        """Forget a client, or keep its session; publish its will unless it said goodbye."""
        client.outbox.close()
        if client.teller is not None:
            client.teller.cancel()
        if self._clients.get(client.id) is client:
            del self._clients[client.id]
        will = None if goodbye or self._stopping else client.arrival.session.will
        if isinstance(client.outbox, Outbox5) and client.expiry_s and not self._stopping:
            backlog, now_s = client.outbox.backlog, self._loop.time()
            kept = Kept.of(client, backlog, will, now_s)
            self._pass_on(client, kept)
            self._keep(kept)
            return
        for filter_ in list(client.filters):
            self.unsubscribe(client, filter_)
        if will is not None:
            self._publish_will(client.arrival.name, will)

    def look_after_kept(self, now_s: float) -> None:
        """Publish the wills that are due, and end the sessions that have expired."""
        for kept in list(self._kept.values()):
            if kept.is_over or now_s >= kept.expires_s:
                self._end(kept)
            elif kept.will is not None and now_s >= kept.will_due_s:
                self._tell_will(kept)

    def _keep(self, kept: Kept) -> None:
        """Keep a session; of too many the oldest ends, of the same name or of all."""
        same = [one for one in self._kept.values() if one.name == kept.name]
        most = self._settings.max_connections_per_name
        crowd = same if kept.name and len(same) >= most else list(self._kept.values())
        if crowd is same or len(crowd) >= self._settings.max_sessions:
            self._refusals.add(Reason.CROWD, f"the session of {crowd[0].id!r}: too many are kept")
            self._end(crowd[0])
        self._kept[kept.id] = kept
        if kept.will is not None and kept.will_due_s <= self._loop.time():
            self._tell_will(kept)

    def _end(self, kept: Kept) -> None:
        del self._kept[kept.id]
        for filter_ in list(kept.filters):
            self.unsubscribe(kept, filter_)
        self._tell_will(kept)

    def _tell_will(self, kept: Kept) -> None:
        will, kept.will = kept.will, None
        if will is not None:
            self._publish_will(kept.name, will)

    def _publish_will(self, name: str, will: Message) -> None:
        will.start_clock(self._loop.time())
        self.send(will)
        if will.retain:
            self.retain(name, will)

    def _pass_on(self, old: Client | Kept, new: Client | Kept) -> None:
        """Have the subscriptions of a session lead to where its client is now, or is not."""
        filters = dict(old.filters)
        for filter_, grant in filters.items():
            self._subscribed.remove(filter_, old)
            self._subscribed.add(filter_, new, grant)
        new.filters = filters
