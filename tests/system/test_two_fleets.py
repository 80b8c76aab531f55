"""Two fleets share a broker: their topic roots keep them apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.namespace import Namespace
from tests.harness.brokers import BrokerProcess
from tests.harness.fleet import ROOT, Fleet, Program


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


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """`alone(*words, answer=...)`: a verb where a fleet is at the usual address, and none named.

    `answer` is what somebody types at a terminal; without one there is none.
    """
    try:
        namespace = Namespace()
    except OSError as error:
        pytest.skip(f"no network namespace: {error}")
    environment = {key: value for key, value in os.environ.items() if "FLEET" not in key} | {
        "XDG_CONFIG_HOME": str(tmp_path)
    }

    def run(*words: str, answer: str = "") -> subprocess.CompletedProcess[str]:
        ours, theirs = os.openpty() if answer else os.pipe()
        os.write(ours if answer else theirs, answer.encode())
        try:
            return subprocess.run(
                [*namespace.prefix, sys.executable, "-m", "coordinator.cli", *words], cwd=ROOT,
                stdin=theirs if answer else subprocess.DEVNULL, env=environment,
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
        finally:
            os.close(ours)
            os.close(theirs)

    programs = []
    try:
        for module in ("broker.embedded", "coordinator.service"):
            state = [] if module == "broker.embedded" else ["--state", str(tmp_path / "state")]
            log = tmp_path / f"{module}.log"
            programs.append(Program(module, state, environment, log, namespace.prefix))
            programs[-1].start()
        yield run
    finally:
        for program in reversed(programs):
            program.stop()
        namespace.remove()


@pytest.mark.slow
def test_a_fleet_that_nobody_named_is_named_and_not_changed_unasked(
    alone: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """It may be anybody's that listens on this machine. A script has to say that it is meant."""
    address = "mqtt://127.0.0.1:1883"
    told = f"this is the fleet at {address}; --broker or FLEET_BROKER names another\n"
    found = alone("status", "--json")
    assert (found.returncode, found.stderr) == (0, told)
    assert not json.loads(found.stdout)["paused"]
    refused = alone("pause")
    assert refused.returncode == 2
    assert f"nobody has named it: say --broker {address}" in refused.stderr
    no = alone("pause", answer="n\n")
    assert no.returncode == 1
    question = f"Let `fleet pause` change the fleet at {address}? [y/N]: "
    assert no.stderr == f"{told}{question}nothing was changed\n"
    assert not json.loads(alone("status", "--json").stdout)["paused"]
    assert alone("pause", answer="y\n").returncode == 0
    assert json.loads(alone("status", "--json").stdout)["paused"]
    named = alone("pause", "--off", "--broker", address)
    assert (named.returncode, named.stderr) == (0, "")
    assert "no job" in alone("cancel", "nope", "--yes").stderr, "the coordinator was asked"
