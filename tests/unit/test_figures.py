"""What is read of the machine itself is what psutil reads."""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

import psutil
import pytest

from agent.host import figures

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere psutil tells")


def test_memory_and_processors_are_those_of_the_machine() -> None:
    """How much there is; and what can be had, which changes while one looks."""
    total_bytes, available_bytes = figures.memory()
    told = psutil.virtual_memory()
    assert total_bytes == told.total
    assert available_bytes == pytest.approx(told.available, rel=0.2)
    assert figures.physical_cores() == (psutil.cpu_count(logical=False) or psutil.cpu_count())
    assert figures.load_1m() == pytest.approx(psutil.getloadavg()[0], abs=1.0)


def test_what_works_meanwhile_is_seen_at_the_next_look() -> None:
    """One core at work is its share of all, whatever else works beside it."""
    busy, until_s = figures.Busy(), time.monotonic() + 0.5
    while time.monotonic() < until_s:
        sum(range(1000))
    share = 100 / (os.cpu_count() or 1)
    assert 0.5 * share < busy.percent() <= 100.0


def test_a_battery_is_seen_where_psutil_sees_one() -> None:
    """Most machines here have none."""
    told = getattr(psutil, "sensors_battery", lambda: None)()
    assert figures.has_battery() is (told is not None)


@linux
def test_terminals_are_those_of_who_is_logged_in(tmp_path: Path) -> None:
    """A boot, a login, one that has ended, a record that is cut: utmp(5)."""
    utmp = tmp_path / "utmp"
    rows = [(2, b"~"), (7, b"pts/3"), (8, b"pts/4"), (7, b"tty1")]
    records = [struct.pack("hi32s4s32s256s2hi2i4i20s", kind, 1, line, b"", b"ann", b"",
                           *[0] * 9, b"") for kind, line in rows]  # fmt: skip
    utmp.write_bytes(b"".join(records) + b"\x07\x00torn")
    assert [*figures.terminals(utmp)] == [Path("/dev/pts/3"), Path("/dev/tty1")]
    assert [*figures.terminals(tmp_path / "none")] == []
