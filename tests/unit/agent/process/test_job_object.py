"""Windows: what its system is told of a job object."""

from __future__ import annotations

import ctypes

import pytest

from agent.process import job_object


def test_the_layout_of_a_job_object_is_that_of_windows() -> None:
    """On 64 bits: 64 and 144 bytes, the flags at 16. A wrong size is refused by the system."""
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        pytest.skip("the figures are those of 64 bits")
    assert ctypes.sizeof(job_object.BasicLimits) == 64
    assert ctypes.sizeof(job_object.ExtendedLimits) == 144
    assert job_object.BasicLimits.LimitFlags.offset == 16
