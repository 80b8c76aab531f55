"""What starts the trainers of a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.process.supervisor import Starter
from tests.harness.processes import Watched

MODULE = "colorsys"  # no test needs it
HAS_IT = f"import sys; print({MODULE!r} in sys.modules)"


class Loaded(Starter):
    """One that imports modules for every Python program."""

    modules: Sequence[str] = (MODULE,)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        work: Path,
        modules: Sequence[str] = (),
    ) -> Any:
        takes = len(command) > 1 and (command[1] == "-m" or command[1].endswith(".py"))
        return super().start(command, environment, work, self.modules if takes else modules)

    def get_ready(self, work: Path, code: str = HAS_IT) -> None:
        """Start trainers until one of them says that it has what was asked for."""
        for _ in range(500):
            run = Watched(self, work, code)
            found = run.line()
            run.code()
            if found == "True":
                return
        raise AssertionError(f"the last one said {found}")


@pytest.fixture
def bare() -> Iterator[Starter]:
    """One that starts an interpreter for each trainer."""
    made = Starter()
    yield made
    made.close()


@pytest.fixture
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """One whose trainers come from an interpreter that stands ready."""
    if sys.platform != "linux":
        pytest.skip("trainers start in a new interpreter there")
    made = Loaded()
    made.get_ready(tmp_path_factory.mktemp("ready"))
    yield made
    made.close()


@pytest.fixture(params=["bare", "loaded"])
def starter(request: pytest.FixtureRequest) -> Starter:
    """Each of both: a trainer sees and leaves the same."""
    found: Starter = request.getfixturevalue(request.param)
    return found
