"""How a host is: one of a closed set, from its presence and the reasons against it."""

from __future__ import annotations

import pytest

from broker.protocol.reasons import reason
from coordinator.jobs.host_condition import TONES, Condition, condition, tone


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("drained", "drained"), ("quarantine", "quarantine"), ("snoozed", "snoozed"),
        ("refuses", "refusing"), ("no-data", "no data"), ("paused", "online"),
    ],
)  # fmt: skip
def test_what_keeps_jobs_off_a_host_is_how_it_is(code: str, word: str) -> None:
    """By its code; one that is away is away, whatever else there is."""
    against = (reason(code),)
    assert condition("online", against) == word
    assert condition("asleep", against) == "asleep"


def test_each_condition_has_a_tone() -> None:
    """What nobody has to do anything about is dim; so is a word of a newer coordinator."""
    dim = {Condition.LEFT, Condition.ASLEEP, Condition.OFFLINE, Condition.UNKNOWN}
    assert {*Condition} - TONES.keys() == dim
    assert tone("of a newer coordinator") == "dim"
