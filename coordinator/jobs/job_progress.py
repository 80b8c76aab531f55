"""How far a job is: one number, whoever asks.

A trainer's progress comes with every epoch, a heartbeat every half a minute with what that progress
was then. So the progress counts; the heartbeat knows more once the trainer has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.figures import span

if TYPE_CHECKING:
    from broker.protocol.messages import HeldJob, Progress

LATE_S: Final = 10.0  # beyond what was guessed
_AFTERWARDS: Final = frozenset({"bundling", "reporting", "uploading"})


def trained(told: Progress | None) -> float | None:
    """Return which share of its epochs a trainer has done, 0 to 1; none: it has told of none."""
    if told is None or not told.epochs or told.epoch is None:
        return None
    return part_of(told.epoch, told.epochs)


def part_of(done: int, whole: int) -> float:
    """Return which part that is, 0 to 1; a host may say numbers that no float holds."""
    return done / whole if done < whole else 1.0


def begun(told: Progress | None) -> float:
    """Return the share of its epochs at which an attempt began: later ones may resume."""
    if told is None or told.attempt == 1 or not told.epochs or not told.first_epoch:
        return 0.0
    return part_of(told.first_epoch - 1, told.epochs)


def left_s(told: Progress | None, since_s: float) -> float | None:
    """Return the trainer's ETA less the seconds since it said so; none: it did not say."""
    return told.eta_s - since_s if told is not None and told.eta_s else None


def left_words(left_s: float | None) -> str:
    """Return that in a word or two; a guess that has passed is said to be one."""
    if left_s is None or left_s >= 1.0:
        return "" if left_s is None else span(left_s)
    return "soon" if left_s > -LATE_S else "late"


def rest_words(left_s: float | None) -> str:
    """Return that within a sentence."""
    if left_s is None or left_s >= 1.0:
        return "" if left_s is None else f"{span(left_s)} left"
    return "it ends soon" if left_s > -LATE_S else "it should be over"


def share(told: Progress | None, held: HeldJob | None) -> float | None:
    """Return the share of the training that is done, or of the hand-over once that has ended."""
    if held is not None and held.phase in _AFTERWARDS:
        return held.progress
    done = trained(told)
    return done if done is not None or held is None else held.progress
