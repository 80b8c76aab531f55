"""What starts the trainers of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.process.supervisor import Starter


@pytest.fixture
def starter() -> Iterator[Starter]:
    """One that is ended afterwards."""
    made = Starter()
    yield made
    made.close()
