"""`[programs]` of a configuration file: what its owner allows, and what is told of a mistake."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.programs import sandbox
from agent.programs.settings import UNSIGNED, ProgramSettings
from broker.errors import ConfigError
from broker.protocol.messages import Program
from broker.protocol.reasons import of_program
from tests.harness.agent import HEX

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no sandbox")


@pytest.fixture(params=[True, False], ids=["with bubblewrap", "without"])
def works(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[bool]:
    """Whether bubblewrap works: as on this host, and as on one that does not have it."""
    if not request.param:
        monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.works.cache_clear()
    if request.param and not sandbox.works():
        pytest.skip(f"bubblewrap does not work here: {sandbox.REMEDY}")
    yield request.param
    sandbox.works.cache_clear()


def read(folder: Path, text: str) -> ProgramSettings:
    path = folder / "fleet.toml"
    path.write_text(f"[programs]\n{text}\n", "utf-8")
    return ProgramSettings.load(path)


def test_without_the_section_nothing_is_let_in(tmp_path: Path) -> None:
    settings = read(tmp_path, "")
    assert settings.allowed() is None
    assert not settings.uses_sandbox()
    assert (settings.network, settings.cache_gib) == (False, 50.0)


def test_a_pinned_parcel_is_let_in_on_any_host(tmp_path: Path, *, works: bool) -> None:
    allowed = read(tmp_path, f'pinned = ["vision@{HEX}"]').allowed()
    assert allowed is not None
    assert (allowed.pinned, allowed.sandbox) == ((HEX,), "bwrap" if works else "none")


@linux
def test_what_an_operator_signed_needs_a_sandbox(tmp_path: Path, *, works: bool) -> None:
    if works:
        assert read(tmp_path, 'signed_by = ["alice"]').uses_sandbox()
        return
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, 'signed_by = ["alice"]')
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'fleet.toml'}: [programs] signed_by: ")
    assert "install bubblewrap" in said
    assert 'sandbox = "none"' in said


@linux
@pytest.mark.usefixtures("works")
def test_an_owner_may_go_without_a_sandbox(tmp_path: Path) -> None:
    settings = read(tmp_path, 'sandbox = "none"\nsigned_by = ["alice"]')
    allowed = settings.allowed()
    assert allowed is not None
    assert (allowed.signed_by, allowed.sandbox) == (("alice",), "none")


def test_a_sandbox_that_was_asked_for_has_to_work(tmp_path: Path, *, works: bool) -> None:
    text = f'pinned = ["sha256:{HEX}"]\nsandbox = "bwrap"'
    if works:
        assert read(tmp_path, text).uses_sandbox()
        return
    with pytest.raises(ConfigError, match=r"\[programs\] sandbox: bubblewrap does not work here"):
        read(tmp_path, text)


def test_elsewhere_parcels_can_be_pinned_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError, match=r"\[programs\] signed_by: .*pin each parcel instead"):
        read(tmp_path, 'signed_by = ["alice"]\nsandbox = "none"')
    assert read(tmp_path, f'pinned = ["sha256:{HEX}"]').allowed() is not None


def test_all_mistakes_are_told_at_once_with_file_key_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, 'pinned = ["vision"]\nsigned_by = ["al/ice"]\nsandbox = "docker"\n'
             'cache_gib = 0\nnetwrok = true')  # fmt: skip
    faults = caught.value.faults
    where = f"{tmp_path / 'fleet.toml'}: [programs] "
    assert all(fault.startswith(where) for fault in faults)
    said = {fault.removeprefix(where).partition(":")[0]: fault for fault in faults}
    assert set(said) == {"pinned", "signed_by", "sandbox", "cache_gib", "netwrok"}
    assert "write sha256:DIGEST, or NAME@DIGEST" in said["pinned"]
    assert "'bwrap' or 'none'" in said["sandbox"]
    assert "network" in said["netwrok"].partition("netwrok:")[2]


def test_what_nobody_signed_is_let_in_where_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobodys = Program(digest=HEX, size_bytes=1)
    assert [one.code for one in of_program(nobodys, read(tmp_path, "").allowed())] == [
        "no-programs"
    ]
    assert not [*of_program(nobodys, read(tmp_path, "unsigned = true").allowed())]
    monkeypatch.setenv(UNSIGNED, "true")
    allowed = read(tmp_path, "").allowed()
    assert not [*of_program(nobodys, allowed)]
    (other,) = of_program(nobodys.model_copy(update={"signers": ("eve",)}), allowed)
    assert other.code == "not-signed"


@pytest.mark.system
@linux
def test_a_sandbox_that_is_broken_is_told_and_not_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a setting of the system that a later start finds changed."""
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    sandbox.works.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"\[programs\] pinned: needs a sandbox"):
            read(tmp_path, f'pinned = ["sha256:{HEX}"]')
        said = read(tmp_path, f'sandbox = "none"\npinned = ["sha256:{HEX}"]')
        assert not said.uses_sandbox()
        assert not read(tmp_path, "unsigned = true").uses_sandbox()
    finally:
        sandbox.works.cache_clear()
