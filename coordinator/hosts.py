"""What the coordinator knows of each host: presence, capability, the newest heartbeat.

Only a birth (`online`) or a heartbeat makes a host online. An `offline` counts only when it bears
the session that the host was last seen with: a late will of an old session changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.clock import Now
from broker.messages import Capability, Heartbeat, Progress, Status


@dataclass(slots=True)
class Host:
    """One host, as far as its messages tell."""

    name: str
    online: bool = False
    offline_why: str = "never seen"
    session: str | None = None
    instance: str | None = None
    capability: Capability | None = None
    heartbeat: Heartbeat | None = None
    last_seen_s: float | None = None
    last_seen_at: str | None = None
    progress: dict[str, Progress] = field(default_factory=dict)

    def has_joined(self) -> bool:
        """Return whether its present process has said what it is, and what it holds.

        Until then it is given nothing: it may hold the very job that is pending.
        """
        said = self.capability is not None and self.capability.instance == self.instance
        return said and self.heartbeat is not None and self.heartbeat.session == self.session

    def seen(self, now: Now) -> None:
        """Note a sign of life."""
        self.last_seen_s = now.mono_s
        self.last_seen_at = now.text()

    def on_status(self, status: Status, now: Now) -> bool:
        """Take a status message; return whether presence changed."""
        was = (self.online, self.session)
        if status.state == "online":
            self.online, self.offline_why = True, ""
            self.session, self.instance = status.session, status.instance
            self.seen(now)
        elif self.session in {None, status.session}:
            self.online, self.offline_why = False, status.reason
            self.session = status.session
        return was != (self.online, self.session)

    def on_heartbeat(self, heartbeat: Heartbeat, now: Now) -> bool:
        """Take a heartbeat; return false when it is of a session that this host did not announce.

        A heartbeat of the present session that was overtaken by a newer one is taken as a sign of
        life, and nothing else.
        """
        self.seen(now)
        if heartbeat.session != self.session:
            if self.online:
                return False
            self.session, self.instance = heartbeat.session, heartbeat.instance
        newest = self.heartbeat
        if newest and newest.session == heartbeat.session and newest.seq >= heartbeat.seq:
            return True
        self.online, self.offline_why = True, ""
        self.heartbeat = heartbeat
        return True

    def silent(self) -> None:
        """Nothing was heard for too long; the broker did not tell."""
        self.online, self.offline_why = False, "lost"
