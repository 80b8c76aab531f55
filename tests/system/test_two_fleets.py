"""Two fleets share a broker: their topic roots keep them apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.harness.brokers import BrokerProcess
from tests.harness.fleet import Fleet


def test_two_fleets_of_equal_names_work_on_one_broker(
    make_fleet: Callable[[Path, str, Path], Fleet],
    any_broker: BrokerProcess, data: Path, tmp_path: Path, short: str,
) -> None:  # fmt: skip
    """Neither coordinator, nor an agent whose name the other fleet has too, is thrown off."""
    fleets = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        fleet = make_fleet(tmp_path / name, any_broker.url, data)
        fleet.plan(f'name = "{name}"\n{short}')
        fleets.append((name, fleet, [fleet.coordinator(), fleet.agent("pi")]))
    for name, fleet, programs in fleets:
        assert fleet.until(name, "completed")["attempt"] == 1
        assert fleet.events(name) == ["added", "assigned", "started", "completed"]
        for program in programs:
            assert "not connected" not in program.said()
