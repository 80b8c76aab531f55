"""A job object of Windows: processes that end with it, and it with the process that holds it.

The system closes the handles of a process however that has ended, and closing the last handle of
such a job ends every process in it, grandchildren too.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

CREATE_SUSPENDED: Final = 0x4
_EXTENDED_LIMITS: Final = 9  # JobObjectExtendedLimitInformation
_KILL_ON_JOB_CLOSE: Final = 0x2000
_SET_QUOTA_AND_TERMINATE: Final = 0x0101


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", ctypes.c_uint32),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", ctypes.c_uint32),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", ctypes.c_uint32),
        ("SchedulingClass", ctypes.c_uint32),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION; the six counters between are of no use here."""

    _fields_ = (
        ("BasicLimitInformation", BasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


if sys.platform == "win32":

    class JobObject:
        """A job without processes. Raises OSError when the system makes none."""

        def __init__(self) -> None:
            """Make it, and have its end be the end of what is in it."""
            self._api = ctypes.WinDLL("kernel32", use_last_error=True)
            self._api.CreateJobObjectW.restype = ctypes.c_void_p
            self._handle = ctypes.c_void_p(self._api.CreateJobObjectW(None, None))
            self._check(self._handle.value)
            limits = ExtendedLimits()
            limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
            self._check(
                self._api.SetInformationJobObject(
                    self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
                )
            )

        def assign(self, pid: int) -> None:
            """Take a process in, before it has started others. Raises OSError."""
            self._api.OpenProcess.restype = ctypes.c_void_p
            process = ctypes.c_void_p(self._api.OpenProcess(_SET_QUOTA_AND_TERMINATE, 0, pid))
            self._check(process.value)
            try:
                self._check(self._api.AssignProcessToJobObject(self._handle, process))
            finally:
                self._api.CloseHandle(process)

        def close(self) -> None:
            """End every process in it, and give the handle back."""
            self._api.CloseHandle(self._handle)
            self._handle = ctypes.c_void_p()

        def _check(self, result: int | None) -> None:
            if not result:
                raise ctypes.WinError(ctypes.get_last_error())
