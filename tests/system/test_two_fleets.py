"""A fleet at the usual address, which nobody has named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.namespace import Namespace
from tests.harness.fleet import Program, bare_environment
from tests.harness.verbs import Done, answered, process


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Callable[..., Done]]:
    """`alone(*words, answer=...)`: a verb where a fleet is at the usual address, and none named.

    `answer` is what somebody types at a terminal; without one there is none.
    """
    try:
        namespace = Namespace()
    except OSError as error:
        pytest.skip(f"no network namespace: {error}")
    environment = bare_environment() | {"XDG_CONFIG_HOME": str(tmp_path)}

    def run(*words: str, answer: str = "") -> Done:
        aimed: dict[str, Any] = {"environment": environment, "prefix": namespace.prefix}
        return answered(answer, *words, **aimed) if answer else process(*words, **aimed)

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
    alone: Callable[..., Done],
) -> None:
    address = "mqtt://127.0.0.1:1883"
    found = alone("status", "--json")
    assert not found.json()["paused"]
    assert f"this is the fleet at {address}" in found.stderr
    refused = alone("pause")
    assert (refused.returncode, f"say --broker {address}" in refused.stderr) == (2, True)
    no = alone("pause", answer="n")
    assert no.returncode == 1
    assert f"Let `fleet pause` change the fleet at {address}?" in no.stderr
    assert not alone("status", "--json").json()["paused"]
    assert alone("pause", answer="y").returncode == 0
    assert alone("status", "--json").json()["paused"]
    named = alone("pause", "--off", "--broker", address)
    assert (named.returncode, named.stderr) == (0, "")
    assert "no job" in alone("cancel", "nope", "--yes").stderr, "the coordinator was asked"
