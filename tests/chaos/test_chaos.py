"""Short campaigns on each broker; `make chaos` and `make kill` run the long ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos import journal
from tests.chaos.campaign import Campaign
from tests.chaos.kills import Kills


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
def test_nothing_is_lost_or_doubled_while_plugs_are_pulled(tmp_path: Path, broker: str) -> None:
    """Real trainings; kills, freezes, cuts, a full store; every artifact is whole in the end."""
    with Campaign(tmp_path, broker=broker, jobs=40, agents=2, seed=11) as campaign:
        report = campaign.run(strikes=20, pause_s=(0.3, 2.0), deadline_s=300.0)
    assert report.is_good(), "\n".join(report.lines())
    assert report.states == {"completed": 40}
    assert sum(report.strikes.values()) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
def test_a_job_trains_in_one_place_whatever_becomes_of_connections(
    tmp_path: Path, broker: str
) -> None:
    """Jobs of seconds, leases of 3 s; each connection is reset, refused and stalled by itself."""
    with Kills(tmp_path, broker=broker, jobs=30, agents=2, seed=11) as campaign:
        report = campaign.run(strikes=30, pause_s=(0.2, 1.2), deadline_s=300.0)
    assert report.is_good(), "\n".join(report.lines())
    assert report.states == {"completed": 30}


def _noted(path: Path, *lines: tuple[str, float, str, int, int]) -> list[journal.Life]:
    """What is read of trainers of one job: what was noted, when, on what host, attempt and pid."""
    keys = ("what", "at_s", "host", "attempt", "pid")
    said = [dict(zip(keys, line, strict=True)) | {"job_id": "a" * 64, "step": 3} for line in lines]
    path.write_text("".join(f"{json.dumps(one)}\n" for one in said), "utf-8")
    return journal.read(path)


def test_two_trainers_of_a_job_are_seen(tmp_path: Path) -> None:
    """Of one that was killed, until its last step; an end in order lets the next one begin."""
    killed = [("begun", 1.0, "one", 1, 7), ("step", 2.0, "one", 1, 7), ("step", 3.0, "one", 1, 7)]
    after = [("begun", 3.1, "two", 2, 8), ("done", 5.0, "two", 2, 8)]
    early = [("begun", 2.5, "two", 2, 8), ("done", 5.0, "two", 2, 8)]
    again = [("begun", 6.0, "one", 1, 7), ("done", 7.0, "one", 1, 7)]
    file = tmp_path / "journal.jsonl"
    assert journal.at_once(_noted(file, *killed, *after)) == []
    assert len(journal.at_once(_noted(file, *killed[:2], *early, *killed[2:]))) == 1
    assert journal.started_twice(_noted(file, *killed, *after)) == []
    assert len(journal.started_twice(_noted(file, *killed, *after, *again))) == 1
