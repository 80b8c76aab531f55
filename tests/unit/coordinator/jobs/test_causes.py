"""Causes: each code has words, and nothing else makes them."""

from __future__ import annotations

import pytest

from coordinator.jobs import causes
from coordinator.jobs.causes import NONE, Cause, cause, in_words, plan_words


@pytest.mark.words
@pytest.mark.parametrize(
    ("why", "words"),
    [
        (NONE, ""),
        (cause("resumes", resumed_from=2), "goes on where attempt 2 left off"),
        (cause("started", resumes=True, slot=0, pid=7), "goes on from a checkpoint; slot 0, pid 7"),
        (cause("silent", presence=None), "no heartbeat vouched for it in time"),
        (cause("silent", presence="asleep"),
         "no heartbeat vouched for it in time; the host is asleep"),
        ({**cause("dropped"), "rival": True},
         "the agent does not have it any more; another coordinator may have stopped it"),
        (cause("error", text="no", retry=1, retries=3), "no; retry 1 of 3"),
        (cause("refused", reasons=[{"code": "a"}, {"code": "b"}]), "a; b"),
        (cause("released", because={"code": "lease"}, checkpoint=True),
         "the coordinator did not renew its lease in time; its checkpoint is kept"),
        (cause("set_aside", set_aside_artifact="ab" * 32, metrics={"auroc": 0.9451}),
         "its result is set aside: AUROC 0.945, artifact abababababab"),
        (cause("set_aside", set_aside_artifact="ab" * 32),
         "its result is set aside: artifact abababababab"),
        (cause("rights", user="observer:a", about="gbt"),
         "observer:a may look, and change nothing ('gbt')"),
        (cause("host", jobs=["a"], gives_back=True, paused=True),
         "it gives back a; no new jobs are given out"),
        (cause("faults", text="no", more=2), "no; and 2 more"),
        (cause("first_of", key="data.train", why=cause("text", text="no"), more=1),
         "data.train: no; and 1 more"),
        (cause("program", name="vision", digest="ab" * 32, is_there=False), "vision@abababababab"),
        (cause("program", name="vision", digest="ab" * 32, is_there=True),
         "vision@abababababab, which was there already"),
        (cause("of a newer coordinator"), "of a newer coordinator"),
    ],
)  # fmt: skip
def test_a_cause_has_words(why: Cause, words: str) -> None:
    """With its figures; a code of a newer coordinator is shown as it is."""
    assert in_words(why) == words


@pytest.mark.words
def test_a_reload_is_told_in_counts() -> None:
    """What there is none of is left out."""
    none = dict.fromkeys((*causes.STEPS, "hosts", "settings"), 0)
    assert plan_words(none | {"unchanged": 1}) == "no changes, 1 unchanged"
    assert plan_words(none | {"added": 2, "hosts": 1}) == "2 added; 1 host changed"
