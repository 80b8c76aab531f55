"""Lines of a service's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker.system.logs import setup


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Leave the root logger as it was."""
    root = logging.getLogger()
    level = root.level
    yield
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # of `setup`; pytest has kinds of its own
            root.removeHandler(handler)
    root.setLevel(level)


def test_each_line_has_time_level_and_logger(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_an_exception_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    setup("INFO")
    try:
        int("odd")
    except ValueError:
        logging.getLogger("fleet.x").exception("it failed")
    told = capsys.readouterr().err.splitlines()
    assert told[0].endswith("Z ERROR   fleet.x: it failed")
    assert told[1].startswith("Traceback")
    assert told[-1].startswith("ValueError: ")
