"""Signed commands with the real programs, on brokers that ask nobody who they are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.fleet import ROOT, bare_environment
from tests.harness.verbs import Done, command, process, verb

KEY = "f" * 20 + "5ecre7" + "0" * 38


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "operator.key"
    path.touch(0o600)
    path.write_text(KEY + "\n", "ascii")
    return path


@pytest.fixture
def keyed(
    tmp_path: Path, any_broker: Any, make_fleet: Any, key_file: Path, short: str
) -> Any:  # fmt: skip
    """A fleet whose coordinator has the key, with one job that waits for a host."""
    fleet = make_fleet(tmp_path, any_broker.url, tmp_path)
    fleet.plan(short)
    plain = fleet.environment
    fleet.environment = {**plain, "FLEET_OPERATOR_KEY_FILE": str(key_file)}
    fleet.program = fleet.coordinator(request_window_s=2.0)
    fleet.environment = plain
    return fleet


Run = Callable[..., Done]


@pytest.fixture
def cli(keyed: Any) -> Run:
    """`cli(*arguments, **environment)`: the command line, aimed at the test's fleet."""
    return lambda *arguments, **more: verb(*arguments, environment=keyed.environment | more)


@pytest.fixture
def trace(keyed: Any, any_broker: Any, client: Any) -> Iterator[Callable[[], list[Any]]]:
    """`trace()`: all that went over the broker so far, as (topic, payload)."""
    seen: list[tuple[str, bytes]] = []
    watcher = client(any_broker.port, f"trace-{keyed.root}")
    watcher.subscribe(f"{keyed.root}/#")

    def take() -> list[tuple[str, bytes]]:
        while not watcher.got.empty():
            seen.append(watcher.next())
        return seen

    return take


def _commands(seen: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    found = [(topic, payload) for topic, payload in seen if topic.endswith("/request")]
    return [one for one in found if json.loads(one[1]).get("auth")]


def test_the_command_line_signs_by_itself(keyed: Any, cli: Run, key_file: Path) -> None:
    refused = cli("cancel", "gbt-oracle")
    assert refused.returncode == 1
    assert "FLEET_OPERATOR_KEY or [broker] operator_key_file" in refused.stderr
    wrong = cli("cancel", "gbt-oracle", FLEET_OPERATOR_KEY="0" * 64)
    assert "is the operator key the coordinator's?" in wrong.stderr
    assert keyed.show("gbt-oracle")["state"] == "pending"

    done = cli("cancel", "gbt-oracle", FLEET_OPERATOR_KEY_FILE=str(key_file))
    assert (done.returncode, done.stderr) == (0, "")
    done = cli("requeue", "gbt-oracle", FLEET_OPERATOR_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert cli("reload", FLEET_OPERATOR_KEY=KEY).stdout.startswith("no changes")
    assert cli("drain", "nobody", FLEET_OPERATOR_KEY=KEY).returncode == 1

    key_file.chmod(0o644)
    open_key = cli("cancel", "gbt-oracle", FLEET_OPERATOR_KEY_FILE=str(key_file))
    assert open_key.returncode == 2
    assert f"chmod 600 {key_file}" in open_key.stderr
    key = {"FLEET_OPERATOR_KEY_FILE": str(key_file)}
    starts = process("coordinator", "--state", str(key_file.parent / "other"), environment=key)
    assert (starts.returncode, f"chmod 600 {key_file}" in starts.stderr) == (2, True)
    status = cli("status", FLEET_OPERATOR_KEY_FILE=str(key_file))
    assert status.returncode == 0, "whoever only looks needs no key"
    assert "1 unsigned, 1 with a wrong signature" in " ".join(status.stdout.split())

    events = cli("events", "--who", "operator")
    told = [line.split()[2:] for line in events.stdout.splitlines() if "operator:" in line]
    assert [line[:3] for line in told] == [
        ["operator:local", "cancel", "refused"], ["operator:local", "cancel", "refused"],
        ["operator:local", "cancelled", "gbt-oracle"],
        ["operator:local", "requeued", "gbt-oracle"],
        ["operator:local", "reload", "no"], ["operator:local", "drain", "refused"],
    ]  # fmt: skip


def test_what_was_recorded_on_the_broker_is_of_no_use(
    keyed: Any, cli: Run, trace: Any, any_broker: Any, client: Any, wait_for: Any
) -> None:
    for name in ("cancel", "requeue"):
        assert cli(name, "gbt-oracle", FLEET_OPERATOR_KEY=KEY).returncode == 0
    history = keyed.events("gbt-oracle")
    assert history[-2:] == ["cancelled", "requeued"]
    recorded = _commands(trace())
    assert len(recorded) >= 2
    evil = client(any_broker.port, f"evil-{keyed.root}")
    keyed.program.kill()
    keyed.program.start()
    for topic, payload in recorded:
        request = json.loads(payload)
        altered = [
            request | {"id": "x"}, request | {"type": "reload"}, request | {"auth": None},
            request | {"auth": request["auth"] | {"mac": "0" * 64}},
            request | {"auth": request["auth"] | {"mac": "0" * 200_000}},
            request | {"auth": request["auth"] | {"at": request["auth"]["at"] + 1}},
        ]  # fmt: skip
        for copy in (payload, *(json.dumps(one).encode() for one in altered)):
            evil.publish(topic, copy)
        evil.publish(topic.replace("operator:local", "operator:root"), payload)

    def is_stale() -> bool:
        evil.publish(*recorded[0])
        return "stale" in keyed.status()["refused"]

    wait_for(is_stale, "the signature to grow old")
    counts = keyed.status()
    assert counts["refused"]["signature"] == 2 * 5
    assert counts["refused"]["unsigned"] == 2
    assert counts["dropped"]["operator/request"] == 2
    assert keyed.events("gbt-oracle") == history
    assert keyed.show("gbt-oracle")["state"] == "pending"
    assert "Traceback" not in keyed.program.said()


def test_the_key_is_nowhere_to_be_seen(
    keyed: Any, cli: Run, trace: Any, key_file: Path, tmp_path: Path
) -> None:
    said = [
        cli(*words, FLEET_OPERATOR_KEY=KEY)
        for words in (
            ("cancel", "gbt-oracle"), ("cancel", "gbt-oracle", "--json"), ("events", "--json"),
            ("status", "--json"), ("show", "gbt-oracle"), ("reload", "--json"),
        )
    ]  # fmt: skip
    shown = "".join(one.stdout + one.stderr for one in said)
    commands = _commands(trace())
    assert len(commands) >= 3
    wire = b"".join(topic.encode() + payload for topic, payload in trace())
    assert KEY not in shown + keyed.program.said()
    assert KEY.encode() not in wire
    for path in (tmp_path / "coordinator").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()
    proc = Path("/proc") / str(keyed.program.process.pid)
    if proc.is_dir():
        assert KEY.encode() not in (proc / "cmdline").read_bytes()
        assert KEY.encode() not in (proc / "environ").read_bytes(), "it was given a file"


def test_of_a_fleet_on_one_machine_the_coordinator_alone_is_given_the_key(
    tmp_path: Path, wait_for: Any
) -> None:
    if not Path("/proc").is_dir():
        pytest.skip("this system does not show the environment of a process")
    given: dict[str, bool] = {}

    def look() -> bool:
        for child in psutil.Process(up.pid).children():
            words = child.cmdline()
            name = next((word for word in words if word.endswith((".embedded", ".service"))), "")
            if name:
                given[name] = KEY.encode() in Path(f"/proc/{child.pid}/environ").read_bytes()
        return len(given) == 3

    with subprocess.Popen(
        command("up", "--agents", "1", "--port", "0", "--state", str(tmp_path)),
        cwd=ROOT, env=bare_environment() | {"FLEET_OPERATOR_KEY": KEY},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as up:  # fmt: skip
        try:
            wait_for(look, "broker, coordinator and agent")
        finally:
            # The second time it does not wait for its children to say goodbye.
            wait_for(lambda: up.terminate() or up.poll() is not None, "the end of them all")
    assert given == {
        "broker.embedded": False, "coordinator.service": True, "agent.service": False
    }  # fmt: skip
