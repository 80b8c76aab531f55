"""Why a host does not take a job: a code with figures. `in_words` has the words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from broker.protocol.messages import FREE_NEEDS

# It may change without anybody's doing.
PASSING: Final = frozenset({
    "offline", "joining", "refuses", "twins", "rules", "snoozed", "busy", "refused", "ram-now",
    "vram-now", "grace", "retry", "not-free", *(f"{what}-now" for what in FREE_NEEDS),
})  # fmt: skip
# What `fleet resume` lifts of a host.
BARRED: Final = frozenset({"drained", "quarantine"})
RESUMED: Final = BARRED | {"snoozed"}
# An operator lifts it, or mounts a disk: the host suits all the same.
LIFTED: Final = BARRED | {"paused", "no-data"}


@dataclass(frozen=True, slots=True)
class Reason:
    """What speaks against a host. Sizes are in GiB, durations in seconds, times RFC 3339."""

    code: str
    figures: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)

    @property
    def passing(self) -> bool:
        """Whether it may change without anybody's doing."""
        return self.code in PASSING

    @property
    def lasts(self) -> bool:
        """Whether neither time ends it, nor an operator's word to the host or the fleet, nor data.

        A certificate that was taken back is not lifted: who is enrolled again begins anew. By this
        alone a job that no host can ever run is told from one that waits for a host.
        """
        return self.code not in PASSING | LIFTED

    def to_dict(self) -> dict[str, JsonValue]:
        """Return it as JSON values."""
        return {"code": self.code, **self.figures}


def reason(code: str, **figures: JsonValue) -> Reason:
    """Return a reason with its figures."""
    return Reason(code, figures)


def from_dict(told: Mapping[str, JsonValue]) -> Reason:
    """Return a reason that an answer of the coordinator has."""
    return Reason(str(told["code"]), {key: told[key] for key in told if key != "code"})
