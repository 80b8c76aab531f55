"""A program of one's own, from a folder on a laptop to its result, on hosts that allow it or not.

Everything is real: certificates by `fleet init`, the embedded broker over TLS, the programs, and
bubblewrap.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.programs import sandbox
from tests.harness.fleet import Program
from tests.harness.owner import Owner

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


def test_a_signed_program_runs_where_its_owner_lets_it_in_and_sees_nothing_else(
    owner: Owner, program: Callable[..., Program], tmp_path: Path
) -> None:
    owner.done("init", "--broker", "localhost", "--operator", "alice")
    identity, ca = f"--identity={owner.fleet / 'broker'}", f"--ca={owner.fleet / 'ca'}"
    port = program(owner, "broker.embedded", "--listen=127.0.0.1:0", identity).ready["port"]
    url = f"mqtts://localhost:{port}"
    (owner.fleet / "fleet.toml").write_text(f'[broker]\nurl = "{url}"\n', "utf-8")
    program(owner, "coordinator.service", ca, f"--state={tmp_path / 'coordinator'}")
    for name, section in (("closed", ""), ("open", '[programs]\nsigned_by = ["alice"]\n')):
        host, file = Owner(tmp_path / name), str(tmp_path / f"{name}.fleet")
        owner.done("enroll", name, "-o", file)
        host.done("join", file)
        (host.fleet / "fleet.toml").write_text(section, "utf-8")
        program(host, "agent.service", f"--broker={url}", f"--state={tmp_path / name / 'state'}")
    home, folder = tmp_path / "open" / "fleet", tmp_path / "laptop"
    secrets = (home / "identities" / "open" / "client.key", home / "fleet.toml",
               Path.home() / ".bashrc")  # fmt: skip
    folder.mkdir()
    (folder / "program.toml").write_text(PROGRAM, "utf-8")
    script = SCRIPT % {"paths": [*map(str, secrets)], "port": port}
    (folder / "fit.py").write_text(script, "utf-8")

    run = ("run", str(folder), "--slope", "0.5", "--get", str(tmp_path / "got"))
    done = owner.run(*run, "--json").json()
    assert (done["state"], done["host"], done["metrics"]) == ("completed", "open", {"r2": 0.5})
    seen = json.loads((Path(done["path"]) / "seen.json").read_text("utf-8"))
    assert seen == {}, "it saw what is the host's or the owner's"
    (known,) = owner.run("programs", "list", "--json").json()
    assert (known["name"], known["signers"], known["hosts"]) == ("fit", ["alice"], ["open"])
    title = f"{known['name']}@{known['digest']}"
    assert owner.done("push", str(folder)).strip() == title, "the same files are the same program"
    owner.done("run", title, "--slope", "1", "--on", "closed", "--name", "refused")
    why = owner.run("why", "refused", "--json").json()
    reasons = {one["host"]: one["reasons"] for one in why["hosts"]}
    assert [one["code"] for one in reasons["closed"]] == ["no-programs"]
    owner.refused("programs", "rm", title)
    owner.done("cancel", "refused")
    owner.done("programs", "rm", title)
    assert owner.run("programs", "list", "--json").json() == []
