"""What an error of the system means."""

from __future__ import annotations

import errno

import pytest

from broker.errors import is_closed_pipe


@pytest.mark.parametrize(("error", "posix", "windows"), [
    (BrokenPipeError(), True, True),
    (OSError(errno.EINVAL, "Invalid argument"), False, True),
    (OSError(errno.EINVAL, "Invalid argument", "plan.toml"), False, False),
    (OSError(errno.ENOSPC, "No space left on device"), False, False),
])  # fmt: skip
def test_a_pipe_that_nobody_reads_is_told_from_a_fault(
    error: OSError, posix: bool, windows: bool
) -> None:
    told = is_closed_pipe(error, windows=False), is_closed_pipe(error, windows=True)
    assert told == (posix, windows)
