"""A program of one's own, from a folder on a laptop to its result, on hosts that allow it or not.

Everything is real: certificates by `fleet init`, the embedded broker over TLS, the programs, and
bubblewrap.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.programs import sandbox
from tests.harness.brokers import free_port
from tests.harness.fleet import ROOT, Program, bare_environment, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sandbox.works(), reason=f"no sandbox here: {sandbox.REMEDY}"),
]
PROGRAM = """
name = "fit"
command = ["python", "fit.py"]
[parameters]
slope = { type = "number", minimum = 0.0 }
"""
# It knows nothing of the fleet, and tries to see what is none of its business.
SCRIPT = """
import argparse, json, pathlib, socket
parser = argparse.ArgumentParser()
parser.add_argument("--slope", type=float)
parser.add_argument("--out-dir", type=pathlib.Path)
given = parser.parse_args()
seen = {}
for name in %(paths)r:
    try:
        seen[name] = pathlib.Path(name).read_bytes().hex()
    except OSError:
        pass
try:
    socket.create_connection(("127.0.0.1", %(port)d), 2.0)
    seen["network"] = ""
except OSError:
    pass
(given.out_dir / "seen.json").write_text(json.dumps(seen))
(given.out_dir / "metrics.json").write_text(json.dumps({"r2": given.slope}))
"""


class Site:
    """A fleet with certificates in one folder: `alice` gives orders, and keeps the CA."""

    def __init__(self, tmp: Path) -> None:
        self.tmp, self.port = tmp, free_port()
        self.programs: list[Program] = []
        home = tmp / "alice" / "fleet"
        home.mkdir(parents=True)
        (home / "fleet.toml").write_text(
            f'[broker]\nurl = "mqtts://localhost:{self.port}"\n', "utf-8"
        )
        self.fleet("init", "--broker", "localhost", "--operator", "alice")
        self.home = home
        listen = ["--listen", f"127.0.0.1:{self.port}", "--identity", str(home / "broker")]
        self.start("broker.embedded", "broker", *listen)
        state, ca = str(tmp / "coordinator"), str(home / "ca")
        self.start("coordinator.service", "coordinator", "--state", state, "--ca", ca)

    def environment(self, who: str) -> dict[str, str]:
        folders = {"XDG_CONFIG_HOME": str(self.tmp / who), "XDG_STATE_HOME": str(self.tmp / who)}
        return bare_environment() | folders

    def fleet(self, *words: str, who: str = "alice", code: int = 0) -> str:
        """Run a verb as somebody; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *words], env=self.environment(who),
            cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def asked(self, *words: str) -> Any:
        return json.loads(self.fleet(*words, "--json"))

    def start(self, module: str, who: str, *arguments: str, by: str = "alice") -> None:
        log = self.tmp / f"{who}.log"
        program = Program(module, [*arguments], self.environment(by), log)
        self.programs.append(program)
        program.start()

    def agent(self, host: str, section: str = "") -> None:
        """Have a host join, with a section of its configuration file, and start its agent."""
        file = self.tmp / f"{host}.fleet"
        self.fleet("enroll", host, "-o", str(file))
        home = self.tmp / host / "fleet"
        home.mkdir(parents=True)
        (home / "fleet.toml").write_text(section, "utf-8")
        self.fleet("join", str(file), who=host)
        url = f"mqtts://localhost:{self.port}"
        self.start("agent.service", host, "--broker", url, "--host", host, by=host)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    for program in reversed(made.programs):
        program.stop()


@pytest.fixture
def folder(tmp_path: Path, site: Site) -> Path:
    made = tmp_path / "laptop"
    made.mkdir()
    secrets = [
        tmp_path / "open" / "fleet" / "identities" / "open" / "client.key",
        tmp_path / "open" / "fleet" / "fleet.toml",
        Path.home() / ".bashrc",
    ]
    script = SCRIPT % {"paths": [*map(str, secrets)], "port": site.port}
    (made / "program.toml").write_text(PROGRAM, "utf-8")
    (made / "fit.py").write_text(script, "utf-8")
    return made


def test_a_signed_program_runs_where_its_owner_lets_it_in_and_sees_nothing_else(
    site: Site, folder: Path, tmp_path: Path
) -> None:
    site.agent("closed")
    site.agent("open", '[programs]\nsigned_by = ["alice"]\n')
    done = site.asked("run", str(folder), "--slope", "0.5", "--get", str(tmp_path / "got"))
    assert (done["state"], done["host"], done["metrics"]) == ("completed", "open", {"r2": 0.5})
    seen = json.loads((Path(done["path"]) / "seen.json").read_text("utf-8"))
    assert seen == {}, "it saw what is the host's or the owner's"
    (known,) = site.asked("programs", "list")
    assert (known["name"], known["signers"], known["hosts"]) == ("fit", ["alice"], ["open"])
    title = f"{known['name']}@{known['digest']}"
    assert site.fleet("push", str(folder)).strip() == title, "the same files are the same program"
    site.fleet("run", title, "--slope", "1", "--on", "closed", "--name", "refused")
    reasons = {one["host"]: one["reasons"] for one in site.asked("why", "refused")["hosts"]}
    assert [one["code"] for one in reasons["closed"]] == ["no-programs"]
    site.fleet("programs", "rm", title, code=1)
    site.fleet("cancel", "refused")
    site.fleet("programs", "rm", title)
    assert site.asked("programs", "list") == []


def test_a_program_of_a_revoked_signer_is_given_back(site: Site, folder: Path) -> None:
    site.agent("open", '[programs]\nsigned_by = ["alice"]\n')
    site.fleet("push", str(folder))
    site.fleet("init", "--broker", "localhost", "--operator", "bob")
    bob = ("--identity", str(site.home / "identities" / "operator@bob"))
    site.fleet(*bob, "revoke", "operator:alice")

    def run(number: int) -> list[dict[str, Any]]:
        """Have one more job run; return what has become of its first attempt."""
        name = f"late-{number}"
        site.fleet(*bob, "run", "fit", "--slope", str(number), "--name", name)
        ends: list[dict[str, Any]] = []

        def has_ended() -> bool:
            events = json.loads(site.fleet(*bob, "show", name, "--json"))["events"]
            ends[:] = [one for one in events if one["event"] in {"released", "completed"}]
            return bool(ends)

        wait_until(has_ended, f"the first attempt of {name}", 60.0)
        return ends

    # The coordinator looks at the CA's list every few seconds.
    first = next(end for number in range(20) if (end := run(number)[0])["event"] == "released")
    assert "signer-revoked" in json.dumps(first["why"])


# It reads all files of its dataset, and tries to write there.
READER = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--data.train", type=pathlib.Path, dest="train")
parser.add_argument("--out-dir", type=pathlib.Path)
given = parser.parse_args()
files = [file for file in given.train.rglob("*") if file.is_file()]
written = 0
for file in files:
    try:
        file.write_bytes(b"mine")
        written += 1
    except OSError:
        pass
total = sum(int(file.read_text()) for file in files)
(given.out_dir / "metrics.json").write_text(json.dumps({"total": total, "written": written}))
"""


def test_a_program_reads_a_dataset_and_another_version_of_it(site: Site, tmp_path: Path) -> None:
    site.agent("open", '[programs]\nsigned_by = ["alice"]\n')
    laptop, tree = tmp_path / "laptop", tmp_path / "numbers"
    for folder in (laptop, tree / "a"):
        folder.mkdir(parents=True)
    (laptop / "program.toml").write_text(
        'name = "sum"\ncommand = ["python", "sum.py"]\n[data]\ntrain = "files with a number"\n'
    )
    (laptop / "sum.py").write_text(READER)
    totals = []
    for number in (7, 35):
        (tree / "a" / f"{number}.txt").write_text(str(number))
        done = site.asked("run", str(laptop), "--data", f"train={tree}", "--wait")
        assert (done["state"], done["host"]) == ("completed", "open")
        totals.append(done["metrics"])
    assert totals == [{"total": 7, "written": 0}, {"total": 42, "written": 0}]

    def is_told() -> bool:
        return all(one["hosts"] == ["open"] for one in site.asked("data", "list"))

    wait_until(is_told, "the host to say which datasets it holds", 60.0)
    kept = [*(tmp_path / "open").glob("**/data/whole/*/files/a/*.txt")]
    assert sorted(path.read_text() for path in kept) == ["35", "7", "7"]
    assert len({path.stat().st_ino for path in kept}) == 2, "both versions have the first file"


TWICE = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--input.fit", dest="fit", type=pathlib.Path)
parser.add_argument("--out-dir", type=pathlib.Path)
given = parser.parse_args()
made = json.loads((given.fit / "metrics.json").read_text())
(given.out_dir / "metrics.json").write_text(json.dumps({"twice": 2 * made["r2"]}))
"""


def test_a_program_reads_what_another_job_has_made_once_that_is_completed(
    site: Site, folder: Path, tmp_path: Path
) -> None:
    """Neither is anywhere but at the coordinator when the host gets it."""
    reader = tmp_path / "reader"
    reader.mkdir()
    about = 'name = "twice"\ncommand = ["python", "read.py"]\n[inputs]\nfit = "metrics.json"\n'
    (reader / "program.toml").write_text(about)
    (reader / "read.py").write_text(TWICE, "utf-8")
    site.fleet("run", str(folder), "--slope", "0.25", "--name", "first")
    wrong = site.fleet("run", str(reader), "--input", "fti=first", "--json", code=1)
    (fault,) = json.loads(wrong)["errors"]
    assert fault["key"] == "inputs.fti"
    second = site.asked("run", str(reader), "--input", "fit=first", "--name", "second")
    assert second["state"] == "pending"
    (before,) = site.asked("why", "second")["predecessors"]
    assert (before["code"], before["job"], before["state"]) == ("waits", "first", "pending")
    site.agent("open", '[programs]\nsigned_by = ["alice"]\n')
    done = site.asked("run", str(reader), "--input", "fit=first", "--get", str(tmp_path / "got"))
    assert (done["name"], done["state"], done["metrics"]) == ("second", "completed", {"twice": 0.5})
    assert done["started_at"] >= site.asked("show", "first")["finished_at"]
