"""What a trainer says of how long it will take."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

from agent.trainer.common.progress import Progress


def _told(seconds: Sequence[float], epochs: int) -> list[float | None]:
    """The eta that is told after each of the first epochs, which take so many seconds."""
    now_s = [100.0]
    stream = io.StringIO()
    progress = Progress(stream, lambda: now_s[0])
    progress.phase("train")
    for epoch, took_s in enumerate(seconds, 1):
        now_s[0] += took_s
        progress.epoch(epoch, epochs, 0.5, 0.5)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [one["eta_s"] for one in events if one["event"] == "progress"]


def test_the_first_seconds_of_a_training_say_nothing_of_the_rest() -> None:
    """Its first epoch warms up what the others use: by that alone it would take five minutes."""
    etas = _told([3.0, *[0.125] * 40], 100)
    assert etas[:16] == [None] * 16
    assert etas[16] == 24.4
    assert all(one is not None and one < 25 for one in etas[16:])


def test_one_long_epoch_tells_how_long_the_others_are() -> None:
    assert _told([60.0], 10) == [540.0]
    assert _told([1.0, 1.0], 2) == [None, 0.0]
