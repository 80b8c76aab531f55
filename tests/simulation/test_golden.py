"""What fixed seeds do and what they send stays as it is, unless a change of it is meant.

`python -m tests.simulation.test_golden` writes both files anew. A difference belongs into the
description of the change.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.protocol.link_events import Outgoing
from broker.protocol.topic_table import Kind
from tests.simulation.nodes import TOPICS
from tests.simulation.run import Run
from tests.simulation.scenario import draw

HERE: Final = Path(__file__).parent
DIGESTS: Final = HERE / "golden_seeds.txt"
TRACE: Final = HERE / "golden_trace.txt"
SEEDS: Final = 40
TRACED_SEED: Final = 2
TRACED_JOBS: Final = 4


def digests() -> Iterator[str]:
    """Yield a line for each seed: steps, virtual seconds, jobs by state, faults. No words."""
    for seed in range(SEEDS):
        run = Run(draw(seed))
        outcome = run.go()
        run.close()
        assert outcome.violation is None, outcome.violation
        what = [outcome.virtual_s, sorted(outcome.jobs.items()), sorted(outcome.faults.items())]
        digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
        yield f"{seed:3} {outcome.steps:6} {digest}"


def trace() -> list[str]:
    """Return a line for each message of a small fleet without faults: sender, kind, keys."""
    scenario = draw(TRACED_SEED)
    run = Run(replace(scenario, jobs=scenario.jobs[:TRACED_JOBS], faults=()))
    lines: list[str] = []

    def watch(sender: str, _to: str, message: Outgoing) -> None:
        topic = TOPICS.parse(message.topic)
        marks = f"qos {message.qos}{' retained' if message.retain else ''}"
        lines.append(f"{sender} {topic.kind.value} {marks} {_shape(topic.kind, message.payload)}")

    run.broker.watch = watch
    outcome = run.go()
    run.close()
    assert outcome.violation is None, outcome.violation
    return lines


def _shape(kind: Kind, payload: bytes) -> str:
    if not payload:
        return "empty"
    if kind.value.endswith(("chunk", "operator/push", "job/log")):
        return f"{len(payload)} B"
    return json.dumps(_types(json.loads(payload)), sort_keys=True)


def _types(value: Any, key: str = "") -> Any:
    """Return a payload with its values replaced by their types; what names a type stays."""
    match value:
        case dict():
            return {key: _types(one, key) for key, one in value.items()}
        case list():
            return [_types(value[0])] if value else []
        case str() if key in {"type", "state", "verdict"}:
            return value
    return type(value).__name__


def test_fixed_seeds_decide_as_before() -> None:
    """The number of steps, the time they take, and what becomes of the jobs."""
    assert list(digests()) == DIGESTS.read_text().splitlines()


def test_a_fleet_sends_the_messages_that_it_sent_before() -> None:
    assert trace() == TRACE.read_text().splitlines()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    DIGESTS.write_text("".join(f"{line}\n" for line in digests()))
    TRACE.write_text("".join(f"{line}\n" for line in trace()))
