"""A line of a service's log: when, how grave, who, what."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker.system.logs import setup


@pytest.fixture(autouse=True)
def others() -> Iterator[None]:
    """Leave the root logger, and what logging looks for, as they were."""
    root = logging.getLogger()
    names = ("logThreads", "logProcesses", "logMultiprocessing", "_srcfile")
    before, level = {n: getattr(logging, n) for n in names}, root.level
    yield
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # of `setup`; pytest has kinds of its own
            root.removeHandler(handler)
    root.setLevel(level)
    for name, value in before.items():
        setattr(logging, name, value)


def test_each_line_bears_its_own_time(capsys: pytest.CaptureFixture[str]) -> None:
    """To the millisecond, in UTC, also where the second before was another."""
    setup("INFO")
    lines = [("INFO", 1_700_000_000.25), ("WARNING", 1_700_000_000.75), ("INFO", 1_700_000_061.5)]
    for level, at_s in lines:
        number = logging.getLevelNamesMapping()[level]
        record = logging.LogRecord("fleet.x", number, "", 0, "job %s", ("a",), None)
        record.created, record.msecs = at_s, at_s % 1 * 1000
        logging.getLogger().handle(record)
    assert capsys.readouterr().err.splitlines() == [
        "2023-11-14T22:13:20.250Z INFO    fleet.x: job a",
        "2023-11-14T22:13:20.750Z WARNING fleet.x: job a",
        "2023-11-14T22:14:21.500Z INFO    fleet.x: job a",
    ]


def test_a_fault_is_told_with_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """The traceback follows the line."""
    setup("INFO")
    try:
        int("odd")
    except ValueError:
        logging.getLogger("fleet.x").exception("it failed")
    told = capsys.readouterr().err.splitlines()
    assert told[0].endswith("Z ERROR   fleet.x: it failed")
    assert told[1].startswith("Traceback")
    assert told[-1].startswith("ValueError: ")
