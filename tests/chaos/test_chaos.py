"""A short campaign on each broker; `make chaos` runs the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
def test_nothing_is_lost_or_doubled_while_plugs_are_pulled(tmp_path: Path, broker: str) -> None:
    """Real trainings; kills, freezes, cuts, a full store; every artifact is whole in the end."""
    with Campaign(tmp_path, broker=broker, jobs=15, agents=2, seed=11) as campaign:
        report = campaign.run(strikes=20, pause_s=(0.3, 2.0), deadline_s=300.0)
    assert report.is_good(), "\n".join(report.lines())
    assert report.states == {"completed": 15}
    assert sum(report.strikes.values()) >= 10
