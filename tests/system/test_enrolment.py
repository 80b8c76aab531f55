"""`fleet enroll` and `fleet join`: a host fetches its certificate with a token."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from pathlib import Path

from tests.harness.fleet import ROOT
from tests.harness.owner import DEADLINE_S, Owner


def test_a_host_fetches_its_certificate_with_a_token(owner: Owner, tmp_path: Path) -> None:
    """One short line to copy; without the token in it, it is read from standard input."""
    owner.done("init", "--broker", "pi.lan", "--operator", "alice")
    for number in range(2):
        name = f"gpu-{number}"
        waiting, line = _enroll(owner, name)
        host = Owner(tmp_path / name)
        where, token = line.split()[2:]
        if number == 0:
            said = host.done("join", where, token)
        else:
            said = host.done("join", where, stdin=token + "\n")
        assert "fleet agent --data DIR" in said
        url = (host.fleet / "identities" / name / "broker.url").read_text()
        assert url == "mqtts://pi.lan:8883\n"
        assert waiting.wait(DEADLINE_S) == 0
        assert len(line) < 100
        folder = host.fleet / "identities" / name
        assert (folder / "client.key").stat().st_mode & 0o777 == 0o600
        assert "cannot be reached" in host.refused("join", where, token)
        assert waiting.stdout is not None
        assert f"{name} has its certificate" in waiting.stdout.read()
        waiting.stdout.close()
    assert "gpu-0 has a certificate until" in owner.refused("enroll", "gpu-0")
    assert "write a time up to a day" in owner.refused("enroll", "x", "--for", "1d")


def test_a_host_that_joins_again_finds_out_before_its_token_is_used(
    owner: Owner, tmp_path: Path
) -> None:
    """The identity of before is there still: without the --replace of the line it is refused."""
    owner.done("init", "--broker", "pi.lan", "--operator", "alice")
    host = Owner(tmp_path / "host")
    bundle = tmp_path / "gpu.fleet"
    owner.done("enroll", "gpu", "-o", str(bundle))
    host.done("join", str(bundle))
    owner.run("revoke", "gpu")
    waiting, line = _enroll(owner, "gpu")
    assert line.endswith(" --replace"), "gpu had one before"
    line = line.removesuffix(" --replace")
    folder = host.fleet / "identities" / "gpu"
    said = host.refused(*line.split()[1:])
    assert said == (
        f"error: {folder}: another identity is there; take --replace, or another -o DIR; "
        "the token holds on, nothing was fetched\n"
    )
    assert waiting.poll() is None
    (tmp_path / "file").write_text("x")
    said = host.refused(*line.split()[1:], "-o", str(tmp_path / "file" / "gpu"))
    assert "no identity can be put there" in said
    assert "the token holds on" in said
    assert "made" in host.done(*line.split()[1:], "--replace")
    assert waiting.wait(DEADLINE_S) == 0
    assert waiting.stdout is not None
    waiting.stdout.close()


def test_a_certificate_that_is_lost_on_the_last_step_says_how_to_get_another(
    owner: Owner, tmp_path: Path
) -> None:
    """What only the writing itself shows, such as a folder in the certificate's place."""
    owner.done("init", "--broker", "pi.lan", "--operator", "alice")
    host = Owner(tmp_path / "host")
    waiting, line = _enroll(owner, "gpu")
    (tmp_path / "there" / "client.crt").mkdir(parents=True)
    said = host.refused(*line.split()[1:], "--replace", "-o", str(tmp_path / "there"))
    assert "; the token is used up: run `fleet enroll gpu --replace` there for another" in said
    assert waiting.wait(DEADLINE_S) == 0
    assert waiting.stdout is not None
    waiting.stdout.close()


def _enroll(owner: Owner, name: str) -> tuple[subprocess.Popen[str], str]:
    """Start `fleet enroll` and return it with the line that it prints for the host."""
    waiting = subprocess.Popen(
        [sys.executable, "-m", "coordinator.cli", "enroll", name, "--address", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=owner.environment,
        cwd=ROOT,
    )  # fmt: skip
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert waiting.stdout is not None
        for _ in range(3):
            lines.put(waiting.stdout.readline())

    threading.Thread(target=read, daemon=True).start()
    while True:
        line = lines.get(timeout=DEADLINE_S).strip()
        if line.startswith("fleet join "):
            return waiting, line


def test_nobody_comes_and_it_ends(owner: Owner) -> None:
    """It does not wait for ever, and says what to do."""
    owner.done("init", "--broker", "pi.lan", "--operator", "alice")
    ran = owner.run("enroll", "gpu", "--address", "127.0.0.1:0", "--for", "1s")
    assert ran.returncode == 1
    assert (
        "nobody has come for the certificate of gpu within 1 s; run `fleet enroll gpu` again"
        in ran.stderr
    )
