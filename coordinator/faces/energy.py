"""What hosts have used: their power, as heartbeats tell it, summed over time; and what is kept.

Home Assistant's energy dashboard wants a meter that never goes back, across restarts of the
coordinator too. So a reading is shown only after it was kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from broker.clock import Now
from broker.protocol.messages import Heartbeat
from coordinator.faces.homeassistant_states import power_w

LONGEST_GAP_S: Final = 120.0  # a host that was silent for longer may have been off
KEEP_EVERY_S: Final = 120.0


class _Kept(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)

    measures: tuple[str, ...] = ()
    energy_wh: float = Field(default=0.0, ge=0)


class _Memory(BaseModel):
    v: int = 1
    hosts: dict[str, _Kept] = {}
    leaving: tuple[str, ...] = ()


@dataclass(slots=True)
class Meter:
    """One host: which measures it has ever told of, and what it has used.

    `counted_wh` is what was summed so far, `kept_wh` what a restart will find, and is shown.
    """

    measures: frozenset[str] = frozenset()
    counted_wh: float = 0.0
    kept_wh: float = 0.0
    _newest: Heartbeat | None = None
    _at_s: float = 0.0

    def take(self, beat: Heartbeat, now: Now) -> bool:
        """Take a heartbeat, if it is new; return whether there is a measure that was not before."""
        newest, self._newest = self._newest, beat
        if newest is beat:
            return False
        at_s, self._at_s = self._at_s, now.mono_s
        drawn_w = power_w(beat.gpus)
        if newest is not None and newest.session == beat.session and drawn_w is not None:
            before_w, gap_s = power_w(newest.gpus), now.mono_s - at_s
            if before_w is not None and 0 < gap_s <= LONGEST_GAP_S:
                self.counted_wh += (before_w + drawn_w) / 2 * gap_s / 3600
        told = {
            "power": drawn_w is not None,
            "gpu": any(gpu.use_percent is not None for gpu in beat.gpus),
            "vram": any(gpu.vram_free_bytes is not None for gpu in beat.gpus),
        }
        measures = self.measures | {name for name, is_told in told.items() if is_told}
        is_news, self.measures = measures != self.measures, measures
        return is_news

    @property
    def energy_kwh(self) -> float | None:
        """What is shown; none for a host that tells no power."""
        return round(self.kept_wh / 1000, 3) if "power" in self.measures else None


@dataclass(slots=True)
class Meters:
    """The meters of all hosts, and when they are to be kept.

    `leaving` are hosts without one, of which something may still stand on the broker.
    """

    of: dict[str, Meter] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    _due_s: float = 0.0
    _is_news: bool = True

    def read(self, host: str, beat: Heartbeat | None, now: Now) -> Meter:
        """Return a host's meter, after it has taken the host's newest heartbeat."""
        meter = self.of.get(host)
        if meter is None:
            meter = self.of[host] = Meter()
            self._is_news = True
        if beat is not None and meter.take(beat, now):
            self._is_news = True
        return meter

    def forget(self, host: str) -> None:
        """Let go of a host's meter; it is leaving."""
        self.of.pop(host, None)
        self.leaving.add(host)
        self._is_news = True

    def has_left(self, host: str) -> None:
        """Nothing stands on the broker of a host, or what does is meant."""
        if host in self.leaving:
            self.leaving.discard(host)
            self._is_news = True

    def due(self, now: Now) -> bytes | None:
        """Return what is to be kept, if it is time; it counts as kept."""
        grown = any(meter.counted_wh > meter.kept_wh + 0.001 for meter in self.of.values())
        if not self._is_news and not (grown and now.mono_s >= self._due_s):
            return None
        self._is_news, self._due_s = False, now.mono_s + KEEP_EVERY_S
        return self.kept()

    def kept(self) -> bytes:
        """Return what is to be kept now."""
        for meter in self.of.values():
            meter.kept_wh = round(meter.counted_wh, 3)  # what is shown is what a restart finds
        hosts = {
            name: _Kept(measures=tuple(sorted(meter.measures)), energy_wh=meter.kept_wh)
            for name, meter in self.of.items()
        }
        memory = _Memory(hosts=hosts, leaving=tuple(sorted(self.leaving)))
        return memory.model_dump_json().encode()


def remembered(kept: bytes | None) -> Meters:
    """Return the meters as they were kept. Raises ValueError for what is none of ours."""
    if not kept:
        return Meters()
    try:
        memory = _Memory.model_validate_json(kept)
    except ValidationError:
        raise ValueError("is not what Home Assistant's face has kept") from None
    meters = {
        name: Meter(frozenset(one.measures), one.energy_wh, one.energy_wh)
        for name, one in memory.hosts.items()
    }
    return Meters(meters, set(memory.leaving) - meters.keys())
