"""`fleet enroll` and `fleet join`: a host fetches its certificate with a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.owner import DEADLINE_S, Owner


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    """Whoever sets the fleet up; has done so."""
    made = Owner(tmp_path / "owner")
    made.done("init", "--broker", "pi.lan", "--operator", "alice")
    return made


@pytest.mark.parametrize("typed", [False, True], ids=["in the line", "typed"])
def test_a_host_fetches_its_certificate_with_a_token(
    owner: Owner, tmp_path: Path, *, typed: bool
) -> None:
    """One short line to copy; without the token in it, it is read from standard input."""
    waiting, line = owner.enroll("gpu")
    host = Owner(tmp_path / "gpu")
    where, token = line[1:]
    if typed:
        host.done("join", where, typed=token + "\n")
    else:
        host.done("join", where, token)
    folder = host.fleet / "identities" / "gpu"
    assert (folder / "broker.url").read_text() == "mqtts://pi.lan:8883\n"
    assert (folder / "client.key").stat().st_mode & 0o777 == 0o600
    assert waiting.wait(DEADLINE_S) == 0
    assert len(" ".join(line)) < 100
    assert "cannot be reached" in host.refused("join", where, token)
    assert "gpu has a certificate until" in owner.refused("enroll", "gpu")
    assert "up to a day" in owner.refused("enroll", "x", "--for", "1d")


def test_a_host_that_joins_again_finds_out_before_its_token_is_used(
    owner: Owner, tmp_path: Path
) -> None:
    """The identity of before is there still: without the --replace of the line it is refused."""
    host, bundle = Owner(tmp_path / "host"), str(tmp_path / "gpu.fleet")
    owner.done("enroll", "gpu", "-o", bundle)
    host.done("join", bundle)
    owner.run("revoke", "gpu")
    waiting, line = owner.enroll("gpu")
    assert line.pop() == "--replace", "gpu had one before"
    said = host.refused(*line)
    assert f"{host.fleet / 'identities' / 'gpu'}: another identity is there" in said
    (tmp_path / "file").write_text("x")
    wrong = host.refused(*line, "-o", str(tmp_path / "file" / "gpu"))
    assert all("the token holds on" in one for one in (said, wrong))
    assert waiting.poll() is None
    host.done(*line, "--replace")
    assert waiting.wait(DEADLINE_S) == 0


def test_a_certificate_that_is_lost_on_the_last_step_says_how_to_get_another(
    owner: Owner, tmp_path: Path
) -> None:
    """What only the writing itself shows, such as a folder in the certificate's place."""
    waiting, line = owner.enroll("gpu")
    (tmp_path / "there" / "client.crt").mkdir(parents=True)
    said = Owner(tmp_path / "host").refused(*line, "--replace", "-o", str(tmp_path / "there"))
    assert "run `fleet enroll gpu --replace`" in said
    assert waiting.wait(DEADLINE_S) == 0


def test_nobody_comes_and_it_ends(owner: Owner) -> None:
    """It does not wait for ever, and says what to do."""
    ran = owner.run("enroll", "gpu", "--address", "127.0.0.1:0", "--for", "1s")
    assert ran.returncode == 1
    assert "run `fleet enroll gpu` again" in ran.stderr
