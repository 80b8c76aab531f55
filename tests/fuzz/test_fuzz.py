"""A short run of the fuzzer; `make fuzz MESSAGES=1000000` runs a long one."""

from __future__ import annotations

from tests.fuzz.fuzzer import ADAPTERS, Fuzzer


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
