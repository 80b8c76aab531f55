"""A short run of the fuzzer; `make fuzz MESSAGES=1000000` runs a long one."""

from __future__ import annotations

import random

from broker.errors import BadTopic
from broker.protocol.topics import Topics
from tests.fuzz.fuzzer import ADAPTERS, Fuzzer, samples
from tests.fuzz.mutate import mutate_topic


def test_garbage_escapes_nowhere_and_changes_nothing() -> None:
    """Every decoder, both cores; a part of what is drawn is even acceptable."""
    fuzzer = Fuzzer(seed=3)
    fuzzer.run(60_000)
    faults = [fault for tally in fuzzer.tallies.values() for fault in tally.faults]
    assert not faults
    assert {f"decoder {kind.value}" for kind in ADAPTERS} <= fuzzer.tallies.keys()
    for name in ("coordinator's core", "agent's core"):
        tally = fuzzer.tallies[name]
        assert 0 < tally.refused < tally.sent == 20_000


def test_any_topic_is_parsed_or_refused() -> None:
    """No other exception, whatever stands between the slashes."""
    rng, topics = random.Random(5), [topic for topic, _ in samples()]
    refused = 0
    for _ in range(20_000):
        try:
            Topics().parse(mutate_topic(rng, rng.choice(topics), topics))
        except BadTopic:
            refused += 1
    assert refused > 5_000
