"""Trainers of Windows: each in a job object, whose processes end with whoever holds that.

The system closes the handles of a process however that has ended, and closing the last handle of
such a job ends every process in it, grandchildren too. Ctrl-Break asks a trainer to end.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from broker.errors import plain
from broker.system import children

_CREATE_SUSPENDED: Final = 0x4
_EXTENDED_LIMITS: Final = 9  # JobObjectExtendedLimitInformation
_KILL_ON_JOB_CLOSE: Final = 0x2000
_SET_QUOTA_AND_TERMINATE: Final = 0x0101
_CTRL_BREAK: Final = 1
_KILLED: Final = 0xFFFF_FFF7  # the exit code that we give; without one it were 0, that of success
KILLED: Final = -9


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
            self._api.TerminateJobObject(self._handle, ctypes.c_uint32(_KILLED))
            self._api.CloseHandle(self._handle)
            self._handle = ctypes.c_void_p()

        def _check(self, result: int | None) -> None:
            if not result:
                raise ctypes.WinError(ctypes.get_last_error())

    class Started:
        """A trainer in a job of its own."""

        has_left_nothing = True  # the job's end ends all of it

        def __init__(self, process: children.Process, job: JobObject) -> None:
            """Take over a process that is in the job."""
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            self.pid = self.trainer_pid = process.pid
            self.output = process.stdout
            self._process = process
            self.let_go = job.close

        def await_end(self) -> int:
            """Wait for its end; return its exit code, -9 if we have ended it."""
            code = self._process.wait()
            return KILLED if code == _KILLED else code

        def signal(self, _number: int) -> None:
            """Ask it to end, whatever the number; end it where it shares no console with us."""
            # Not by `os.kill`: where that cannot ask, it ends the process and raises SystemError.
            if not ctypes.WinDLL("kernel32").GenerateConsoleCtrlEvent(_CTRL_BREAK, self.pid):
                self.let_go()

        def end_rest(self) -> None:
            """After its end: end what it has started."""
            self.let_go()

    class Starter:
        """Starts trainers."""

        def start(
            self,
            command: Sequence[str],
            environment: Mapping[str, str],
            work: Path,
            modules: Sequence[str] = (),  # noqa: ARG002 - no process is forked here
        ) -> Started:
            """Start a trainer in its work folder. Raises OSError when that fails."""
            job = JobObject()
            process = children.start(
                command,
                environment,
                work,
                stderr=children.WITH_OUTPUT,
                windows_flags=_CREATE_SUSPENDED,
            )
            try:
                job.assign(process.pid)
                psutil.Process(process.pid).resume()
            except (OSError, psutil.Error) as error:
                process.kill()
                job.close()
                raise OSError(f"it cannot be put into a job object: {plain(error)}") from error
            return Started(process, job)

        def close(self) -> None:
            """Nothing stands ready."""
