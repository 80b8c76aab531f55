"""What the coordinator knows of each host: presence, capability, the newest heartbeat.

Only a birth (`online`) or a heartbeat makes a host online. An `offline` counts only when it bears
the session that the host was last seen with: a late will of an old session changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pydantic_core import to_json

from broker.clock import Now
from broker.protocol.reasons import Reason

if TYPE_CHECKING:
    from broker.protocol.messages import Capability, Heartbeat, Progress, Status, TrainerInfo

TWIN_WINDOW_S: Final = 180.0
TWIN_RETURNS: Final = 2
QUICK_S: Final = 2.0
OVERLAP_S: Final = 1.0  # in which no agent that ended has started again and connected
RETURN_WAIT_S: Final = 15.0  # an agent that was thrown off the broker is back in seconds
MAX_EARLIER: Final = 16
MOST_SETS: Final = 64  # of trainers
# A broker that ends may first say of all its clients that they are lost.
LAST_WORDS_S: Final = 2.0


class TrainerSets:
    """Keep equal sets of trainers once: a set takes 90 KB of memory, the rest of a host 5 KB."""

    def __init__(self) -> None:
        """Start without any."""
        self._known: dict[bytes, dict[str, TrainerInfo]] = {}

    def share(self, capability: Capability) -> Capability:
        """Return the capability with its trainers shared."""
        if len(self._known) >= MOST_SETS:
            self._known.clear()
        trainers = self._known.setdefault(to_json(capability.trainers), capability.trainers)
        return capability.model_copy(update={"trainers": trainers})


@dataclass(frozen=True, slots=True)
class Holdback:
    """A host refused a job, or could not use a program: it is not asked again until then."""

    until_s: float
    times: int
    reasons: tuple[Reason, ...]


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
    early: Heartbeat | None = None  # the newest, of a session that it has yet to announce
    heard: Now | None = None  # the last time
    unlisted: dict[tuple[str, int], float] = field(default_factory=dict)  # held, but not by it
    progress: dict[str, Progress] = field(default_factory=dict)  # of the newest attempts alone
    told_s: dict[str, float] = field(default_factory=dict)  # when each of these was heard
    absence: str = "unknown"
    earlier: OrderedDict[str, None] = field(default_factory=OrderedDict)
    returns_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    replaced_alive_s: float | None = None
    unusable: dict[str, Holdback] = field(default_factory=dict)  # programs, by digest
    quick: set[str] = field(default_factory=set)  # models whose newest attempt there ran so briefly

    def has_run(self, model: str, ran_s: float | None) -> None:
        """Note how long an attempt ran there; one that never ran may have waited for a slot."""
        if ran_s is None:
            self.quick.clear()
        elif ran_s <= QUICK_S:
            self.quick.add(model)
        else:
            self.quick.discard(model)

    def cannot_use(self, now: Now) -> dict[str, Reason]:
        """Return by its digest each program that it is not given now, with the reason."""
        held_back = self.unusable.items()
        return {digest: one.reasons[0] for digest, one in held_back if one.until_s > now.mono_s}

    def holdings(self) -> tuple[str, ...]:
        """Return the digests of the datasets and programs that it holds, as far as it has said."""
        return () if self.capability is None else self.capability.holdings

    def has_joined(self) -> bool:
        """Return whether its present process has sent capability and heartbeat."""
        said = self.capability is not None and self.capability.instance == self.instance
        return said and self.heartbeat is not None and self.heartbeat.session == self.session

    def presence(self, now: Now) -> str:
        """Return in one word how the host is: see docs/how-to/operations.md.

        Online: `online`, or until its first heartbeat `starting`; or `twins`, when two agents use
        its name. Offline: `left`, `asleep`, `cut-off`, `silent`, or `unknown`.
        """
        if not self.online:
            return self.absence
        if self.has_twin(now):
            return "twins"
        return "online" if self.has_joined() else "starting"

    def has_twin(self, now: Now) -> bool:
        """Whether two agents seem to use this name: processes that were replaced keep returning."""
        return self._returns(now) >= TWIN_RETURNS

    def alone_s(self) -> float:
        """Return when it will not count as two agents, if no process returns till then."""
        return self.returns_s[-TWIN_RETURNS] + TWIN_WINDOW_S

    def alone_in_s(self, now: Now) -> float:
        """Return for how long it will count as two agents, if no process returns meanwhile."""
        return self.alone_s() - now.mono_s if self.has_twin(now) else 0.0

    def may_have_twin(self, now: Now) -> bool:
        """Whether a replaced process has returned or may return; its jobs are then not lost yet.

        A new process that was there at once, rather than after a restart, is a second agent of the
        same name; the trainers of the first one still run.
        """
        at_s = self.replaced_alive_s
        awaited = at_s is not None and now.mono_s - at_s < RETURN_WAIT_S
        return awaited or self._returns(now) > 0

    def _returns(self, now: Now) -> int:
        self.returns_s = [at_s for at_s in self.returns_s if now.mono_s < at_s + TWIN_WINDOW_S]
        return len(self.returns_s)

    def may_sleep(self) -> bool:
        """Whether this machine is one that goes to sleep: it has done so, or has a battery."""
        slept = self.heartbeat is not None and (self.heartbeat.suspended_s or 0.0) > 1.0
        return slept or (self.capability is not None and self.capability.battery)

    def on_status(self, status: Status, now: Now, *, retained: bool) -> bool:
        """Take a status message; return whether presence changed. A retained will is ignored."""
        was = (self.online, self.session)
        if status.state == "online":
            self._replaced_by(status, now)
            self.online, self.offline_why = True, ""
            self.session, self.instance = status.session, status.instance
            self.heard = now
        elif self.online and retained and status.reason == "lost":
            return False
        elif self.session in {None, status.session}:
            self.online, self.offline_why = False, status.reason
            self.session, self.ended_s = status.session, now.mono_s
            self.absence = "left" if status.reason == "goodbye" else self._asleep_or("cut-off")
        return was != (self.online, self.session)

    def on_heartbeat(self, heartbeat: Heartbeat, now: Now) -> bool:
        """Take a heartbeat; return false when it is of a session that was not announced."""
        self.heard = now
        self.early = None
        if heartbeat.session != self.session:
            if self.online:
                self.early = heartbeat
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
        self.absence = self._asleep_or("silent")

    def _asleep_or(self, word: str) -> str:
        """Return the condition of a host that was lost without a goodbye."""
        return "asleep" if self.may_sleep() else word

    def doubt(self, now: Now) -> bool:
        """Our connection has ended: undo a loss that was told just before; return whether."""
        is_lost = not self.online and self.offline_why == "lost" and self.ended_s is not None
        is_doubtful = is_lost and now.mono_s - (self.ended_s or 0.0) < LAST_WORDS_S
        if is_doubtful:
            self.online, self.offline_why = True, ""
        return is_doubtful

    def _replaced_by(self, status: Status, now: Now) -> None:
        if self.instance in {None, status.instance}:
            return
        ended_s = now.mono_s if self.online else self.ended_s
        at_once = ended_s is not None and now.mono_s - ended_s < OVERLAP_S
        self.replaced_alive_s = now.mono_s if at_once else None
        self.earlier[self.instance or ""] = None
        while len(self.earlier) > MAX_EARLIER:
            self.earlier.popitem(last=False)
        if status.instance in self.earlier:
            self.returns_s.append(now.mono_s)
