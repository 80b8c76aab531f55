"""Who answers a client, since when nobody does, and the errors that tell so.

`Contact` is a plain state machine, told of each event with the time (monotonic seconds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from broker.errors import FleetError

if TYPE_CHECKING:  # verbs that ask nobody load neither
    from broker.protocol.link_events import Disconnected
    from broker.protocol.messages import Status

SILENT_S: Final = 8.0  # without an answer, while something is asked
USUAL_S: Final = 5.0  # how long an answer is waited for, unless somebody says otherwise


Missing = Literal["broker", "coordinator", "answer"]


class Unreachable(FleetError):  # noqa: N818 - a state of the world, not a mistake
    """The broker or the coordinator did not answer within the deadline; `what` as in `Outage`."""

    joint = "\n"

    def __init__(self, what: Missing, wrong: str, remedy: str = "") -> None:
        super().__init__(wrong, remedy)
        self.what = what


class NotDone(FleetError):  # noqa: N818 - see above
    """The coordinator refused, or did not find what was asked for.

    `data`, `code` and `why` are those of its `OperatorResponse`, `errors` what `data` lists. A verb
    that has words for those adds them as notes.
    """

    joint = "\n"

    def __init__(
        self,
        message: str,
        data: Any = None,
        code: str = "refused",
        why: Mapping[str, Any] | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message, remedy)
        self.data, self.code = data, code
        self.errors = data.get("errors", []) if isinstance(data, dict) else []
        self.why = {**why} if why else {"code": "text", "text": message}


@dataclass(frozen=True, slots=True)
class Outage:
    """Why what is shown may be old.

    `what` is missing: the `broker`; the `coordinator`, which has said goodbye or was lost; its
    `answer`, though it has not. `first`: nothing is wrong, the first answer is on its way.
    `since_s` is on the monotonic clock; none: since before this client looked. `why` are the
    link's words.
    """

    what: Missing | Literal["first"]
    since_s: float | None
    why: str = ""

    def told(self, coordinator: Status | None) -> tuple[str, str]:
        """Say what is missing, and what is done about it; by the coordinator's last status."""
        if self.what == "broker":
            return "The broker cannot be reached", f"It is tried again all the time ({self.why})."
        if self.what == "coordinator":
            is_ended = coordinator is not None and coordinator.reason == "goodbye"
            how = "It was ended" if is_ended else "Its connection was lost"
            return "The coordinator is gone", f"{how}; start it. What runs goes on meanwhile."
        if self.what == "first":
            return "The coordinator has yet to answer", ""
        if coordinator is None:
            return "No coordinator has been heard", "Start one: `fleet coordinator`."
        keeps = "Its log says what keeps it (a full disk); what runs goes on meanwhile."
        return "The coordinator does not answer", keeps


class Contact:
    """What one client knows of the broker and the coordinator that it talks to.

    `lost` is the last failure while there is no connection, `coordinator` its last status, and
    `offline_s` when this client heard that it is offline; none: it is not.
    """

    def __init__(self) -> None:
        self.connected = False
        self.lost: Disconnected | None = None
        self.coordinator: Status | None = None
        self.offline_s: float | None = None
        self._lost_s: float | None = None
        self._gone_s: float | None = None
        self._waits_s: float | None = None
        self._answered_s: float | None = None
        self._is_fresh = False  # answered on this connection

    def on_start(self, now_s: float) -> None:
        """The client begins to connect."""
        self._lost_s = now_s

    def on_connected(self) -> None:
        """The broker is there; the coordinator has yet to answer."""
        self.connected, self.lost = True, None
        self._is_fresh, self._waits_s = False, None

    def on_disconnected(self, lost: Disconnected, now_s: float) -> None:
        """The broker is gone, or still is; the coordinator's status may change unseen."""
        if self.connected:
            self._lost_s = now_s
        self.connected, self.lost, self.offline_s = False, lost, None

    def on_coordinator(self, status: Status | None, now_s: float) -> None:
        """The coordinator's status has come; none: it was cleared, or makes no sense."""
        self.coordinator = status
        if status is None or status.state == "online":
            self.offline_s = None
        elif self.offline_s is None:
            self.offline_s = now_s
            # A status that was kept by the broker may be of any age.
            self._gone_s = now_s if self._is_fresh else self._answered_s

    def on_asked(self, now_s: float) -> None:
        """Something is asked of the coordinator."""
        if self._waits_s is None:
            self._waits_s = now_s

    def on_answered(self, now_s: float) -> None:
        """The coordinator has answered, whatever it was asked: it is there."""
        self._waits_s, self._answered_s = None, now_s
        self._is_fresh, self.offline_s = True, None

    def silent_s(self, now_s: float) -> float:
        """Return for how many seconds nothing that was asked has been answered."""
        return 0.0 if self._waits_s is None else now_s - self._waits_s

    def outage(self, now_s: float) -> Outage | None:
        """Return why what is shown may be old, or none when it is current."""
        if not self.connected:
            return Outage("broker", self._lost_s, str(self.lost or "connecting"))
        if self.offline_s is not None:
            return Outage("coordinator", self._gone_s)
        if self.silent_s(now_s) > SILENT_S:
            since_s = self._waits_s if self._answered_s is None else self._answered_s
            return Outage("answer", since_s)
        return None if self._is_fresh else Outage("first", None)
