"""Whose programs a host runs: pinned ones, and those with a signature that counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.clock import Now
from broker.pki.identity import CA_FILE, DAY_S
from broker.programs.signatures import sign
from broker.programs.trust import verifier
from broker.programs.unusable import Unusable
from broker.protocol import messages as m
from tests.harness.agent import HEX
from tests.harness.secure import FAKE_S, House
from tests.unit.agent.programs.conftest import Host

pytestmark = pytest.mark.posix  # signers need a sandbox


class Site:
    """A host of a fleet. Its owner trusts `alice`, unless `allowed` says something else."""

    def __init__(self, root: Path, **allowed: Any) -> None:
        self.fleet, self.now_s = House.make(root / "fleet", at_s=FAKE_S), FAKE_S
        ca = root / CA_FILE
        ca.write_bytes(self.fleet.authority.pem)
        given = {"pinned": (), "signed_by": ("alice",), "sandbox": "none"} | allowed
        verify = verifier(ca, lambda: Now(0.0, self.now_s))
        self.host = Host(root, verify=verify, **given)

    def sign(self, who: str, by: House | None = None, days: float = 365.0) -> m.ProgramSignature:
        identity = (by or self.fleet).identity(f"operator:{who}", days=days)
        return sign(identity, "vision", self.host.program.digest)

    def find(self, *signatures: m.ProgramSignature, **more: Any) -> bool:
        """Look for the program of a job; the coordinator names its signers, and sends the CRL."""
        signers = tuple(one.signer for one in signatures)
        program = self.host.program.model_copy(update={"signers": signers})
        crl = self.fleet.crl.decode()
        fields = {"program": program, "signatures": signatures, "crl": crl} | more
        return self.host.programs.find(self.host.assign(**fields))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_program_that_a_trusted_operator_signed_is_let_in(site: Site) -> None:
    signature = site.sign("alice")
    assert not site.find(signature), "it is not here yet"
    site.host.fetch()
    assert site.find(signature)
    assert site.find(signature, crl=""), "a fleet may have no list"


def test_one_signature_that_counts_is_enough(site: Site, tmp_path: Path) -> None:
    forged = site.sign("alice", House.make(tmp_path / "elsewhere", at_s=FAKE_S))
    site.host.fetch()
    assert site.find(site.sign("bob"), forged, site.sign("alice"))


def test_what_an_owner_does_not_name_is_not_let_in(site: Site) -> None:
    other = site.host.program.model_copy(update={"digest": HEX})
    for refused in ([site.sign("bob")], []):
        with pytest.raises(Unusable, match="not-allowed"):
            site.find(*refused)
    with pytest.raises(Unusable, match="not-allowed"):
        site.find(site.sign("alice"), program=other)


def test_a_signer_whom_the_coordinator_makes_up_is_refused(site: Site) -> None:
    program = site.host.program.model_copy(update={"signers": ("alice",)})
    bobs = site.sign("bob")
    with pytest.raises(Unusable, match="no-signature"):
        site.find(bobs, program=program)
    as_alice = bobs.model_copy(update={"signer": "alice"})
    with pytest.raises(Unusable, match=r"other-signer, .*name bob"):
        site.find(as_alice)
    with pytest.raises(Unusable, match="no-signature"):
        site.find(program=program)


def test_a_signature_of_another_program_is_refused(site: Site) -> None:
    alices = site.fleet.identity("operator:alice")
    for name, digest in (("vision", HEX), ("other", site.host.program.digest)):
        with pytest.raises(Unusable, match="bad-signature"):
            site.find(sign(alices, name, digest))


@pytest.mark.parametrize("code", ["other-ca", "signer-revoked", "expired"])
def test_a_signature_that_does_not_count_is_refused_though_the_program_is_here(
    site: Site, tmp_path: Path, code: str
) -> None:
    by = House.make(tmp_path / "elsewhere", at_s=FAKE_S) if code == "other-ca" else site.fleet
    signature = site.sign("alice", by, days=2)
    site.host.fetch()
    assert code == "other-ca" or site.find(signature)
    if code == "signer-revoked":
        site.fleet.authority.revoke("operator:alice", FAKE_S)
    elif code == "expired":
        site.now_s += 3 * DAY_S
    with pytest.raises(Unusable, match=code):
        site.find(signature)


def test_a_host_without_certificates_takes_no_signature(tmp_path: Path) -> None:
    site = Site(tmp_path)
    bare = Host(tmp_path / "state", pinned=(), signed_by=("alice",), sandbox="none")
    program = bare.program.model_copy(update={"signers": ("alice",)})
    signature = site.sign("alice")
    with pytest.raises(Unusable, match="no-signature"):
        bare.programs.find(bare.assign(program=program, signatures=(signature,)))


def test_a_pinned_program_needs_no_signature_that_counts(tmp_path: Path) -> None:
    host = Host(tmp_path, sandbox="none")
    stranger = House.make(tmp_path / "elsewhere", at_s=FAKE_S).identity("operator:eve")
    signature = sign(stranger, "vision", host.program.digest)
    signed = host.program.model_copy(update={"signers": ("eve",)})
    assert not host.programs.find(host.assign())
    host.fetch()
    assert host.programs.find(host.assign())
    assert host.programs.find(host.assign(program=signed, signatures=(signature,)))
    other = host.program.model_copy(update={"digest": HEX})
    with pytest.raises(Unusable, match="not-allowed"):
        host.programs.find(host.assign(program=other))
