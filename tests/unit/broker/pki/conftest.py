"""A CA of the test's own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.pki.ca import Authority
from broker.pki.identity import DAY_S


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA that is a month old."""
    return Authority.create(tmp_path / "ca", time.time() - 30 * DAY_S)
