"""The energy that hosts have used: their power, as heartbeats tell it, summed over time.

Home Assistant's energy dashboard wants a meter that never goes back, across restarts too. So a
reading is shown only after it was kept.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from broker.clock import Now
from broker.protocol.messages import Heartbeat
from coordinator.faces.homeassistant_states import power_w

LONGEST_GAP_S: Final = 120.0  # a host that was silent for longer may have been off
KEEP_EVERY_S: Final = 120.0


class Meter(BaseModel):
    """What one host has used (`energy_wh`, as kept), and which measures it has ever told of."""

    model_config = ConfigDict(allow_inf_nan=False)

    measures: frozenset[str] = frozenset()
    energy_wh: float = Field(default=0.0, ge=0)
    _counted_wh: float = PrivateAttr(default=0.0)
    _newest: Heartbeat | None = PrivateAttr(default=None)
    _at_s: float = PrivateAttr(default=0.0)

    def model_post_init(self, context: Any, /) -> None:
        """Go on from what was kept."""
        super().model_post_init(context)
        self._counted_wh = self.energy_wh

    def take(self, beat: Heartbeat, now: Now) -> bool:
        """Take a heartbeat, if it is new; return whether it has a measure that was not before."""
        newest, self._newest = self._newest, beat
        if newest is beat:
            return False
        at_s, self._at_s = self._at_s, now.mono_s
        drawn_w = power_w(beat.gpus)
        if newest is not None and newest.session == beat.session and drawn_w is not None:
            before_w, gap_s = power_w(newest.gpus), now.mono_s - at_s
            if before_w is not None and 0 < gap_s <= LONGEST_GAP_S:
                self._counted_wh += (before_w + drawn_w) / 2 * gap_s / 3600
        told = {
            "power": drawn_w is not None,
            "gpu": any(gpu.use_percent is not None for gpu in beat.gpus),
            "vram": any(gpu.vram_free_bytes is not None for gpu in beat.gpus),
        }
        before = self.measures
        self.measures = before | {name for name, is_told in told.items() if is_told}
        return self.measures != before

    def has_grown(self) -> bool:
        """Whether more was counted than is kept."""
        return self._counted_wh > self.energy_wh + 0.001

    def keep(self) -> None:
        """Take what was counted for kept."""
        self.energy_wh = round(self._counted_wh, 3)

    @property
    def energy_kwh(self) -> float | None:
        """What is shown; none for a host that tells no power."""
        return round(self.energy_wh / 1000, 3) if "power" in self.measures else None


class Meters(BaseModel):
    """The meters of all hosts, as they are kept.

    `leaving` are hosts without one, of which something may still stand on the broker.
    """

    v: int = 1
    hosts: dict[str, Meter] = {}
    leaving: set[str] = set()
    _due_s: float = PrivateAttr(default=0.0)
    _is_news: bool = PrivateAttr(default=True)

    def read(self, host: str, beat: Heartbeat | None, now: Now) -> None:
        """Have a host's meter take its newest heartbeat."""
        if host not in self.hosts:
            self.hosts[host] = Meter()
            self._is_news = True
        if beat is not None:
            self._is_news |= self.hosts[host].take(beat, now)

    def forget(self, host: str) -> None:
        """Remove a host's meter; it is leaving."""
        self.hosts.pop(host, None)
        self.leaving.add(host)
        self._is_news = True

    def has_left(self, host: str) -> None:
        """Nothing stands on the broker of a host, or what does is meant."""
        if host in self.leaving:
            self.leaving.discard(host)
            self._is_news = True

    def due(self, now: Now) -> bytes | None:
        """Return what is to be kept, if it is time; it counts as kept."""
        has_grown = now.mono_s >= self._due_s and any(map(Meter.has_grown, self.hosts.values()))
        if not self._is_news and not has_grown:
            return None
        self._is_news, self._due_s = False, now.mono_s + KEEP_EVERY_S
        return self.kept()

    def kept(self) -> bytes:
        """Return what is to be kept now."""
        for meter in self.hosts.values():
            meter.keep()
        return self.model_dump_json().encode()


def remembered(kept: bytes | None) -> Meters:
    """Return the meters as they were kept. Raises ValueError for what is none of ours."""
    if not kept:
        return Meters()
    try:
        meters = Meters.model_validate_json(kept)
    except ValidationError:
        raise ValueError("is not what Home Assistant's face has kept") from None
    meters.leaving -= meters.hosts.keys()
    return meters
