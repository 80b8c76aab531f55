"""A user without a home, as in a container: every verb works where it needs none, or says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.fleet import ROOT
from tests.harness.verbs import Done, process

pytestmark = [
    pytest.mark.system,
    pytest.mark.posix,  # each user has a home there
]

# A user whom /etc/passwd does not know; whoever is no administrator cannot become one.
UNKNOWN = """
import pwd

def unknown(*_):
    raise KeyError("getpwuid(): uid not found")

pwd.getpwuid = pwd.getpwnam = unknown
"""
NOBODY_THERE = ("--broker", "mqtt://127.0.0.1:1")
SET_IT = "this user has no home folder: set HOME, or XDG_"
PLAN = 'schema_version = 1\n[[jobs]]\nmodel = "gbt"\nmode = "oracle"\n'


def _run(folder: Path, *arguments: str) -> Done:
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(UNKNOWN)
    (folder / "plan.toml").write_text(PLAN)
    path = os.pathsep.join([str(folder / "site"), str(ROOT)])
    without = ["env", "-u", "HOME", "-u", "USER", "-u", "LOGNAME"]
    for name in os.environ:
        without += ["-u", name] if name.startswith("XDG_") else []
    environment = {"PYTHONPATH": path}
    return process(*arguments, environment=environment, prefix=tuple(without), cwd=folder)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("status", *NOBODY_THERE), 3, "the broker is not reachable"),
        (("why", "job", *NOBODY_THERE), 3, "the broker is not reachable"),
        (("check", "plan.toml"), 0, "1 job, no errors"),
        (("plan", "plan.toml", "--broker", "mqtts://127.0.0.1:1"), 2, SET_IT),
        (("snooze", "--here", "--off", "--state", "state"), 2, "no agent has kept its state"),
        (("coordinator", *NOBODY_THERE), 2, SET_IT),
        (("agent", *NOBODY_THERE), 2, SET_IT),
        (("doctor", "--role", "operator", *NOBODY_THERE), 1, "fail"),
        (("doctor", "--role", "coordinator", *NOBODY_THERE), 1, SET_IT),
        (("fsck",), 2, SET_IT),
        (("backup", "copy.db"), 2, SET_IT),
        (("init",), 2, SET_IT),
        (("init", "--home", "home", "--broker", "pi.lan"), 0, "--home"),
        (("enroll", "pi"), 2, SET_IT),
        (("join", "192.0.2.7:1", "token"), 2, ""),
        (("revoke", "pi"), 2, SET_IT),
        (("operator-key", "-o", "key"), 0, "/etc/fleet/fleet.toml"),
        (("broker", "config", "nats", "-o", "~nobody/nats"), 2, "write the whole path"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_who_has_no_home_is_told_what_lacks_it(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ran = _run(tmp_path, *arguments)
    assert "Traceback" not in ran.stderr
    assert (ran.returncode, said in ran.stdout + ran.stderr) == (code, True), ran.stderr
