"""Signatures of programs: whose count, and what a forger or a revoked operator is told."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ConfigError
from broker.pki import identity as ids
from broker.pki.identity import DAY_S
from broker.programs.signatures import check, sign
from broker.programs.unusable import Unusable
from broker.protocol.messages import Fault, ProgramSignature
from tests.harness.secure import FAKE_S, House

DIGEST = "3f" * 32


@pytest.fixture
def fleet(tmp_path: Path) -> House:
    return House.make(tmp_path, at_s=FAKE_S)


def signer(
    fleet: House, signature: ProgramSignature, name: str = "vision", digest: str = DIGEST, *,
    crl: bytes | None = None, now_s: float = FAKE_S,
) -> str:  # fmt: skip
    crl = fleet.crl if crl is None else crl
    return check(signature, name, digest, fleet.authority.pem, crl, now_s)


def signed(fleet: House, name: str = "operator:alice") -> ProgramSignature:
    return sign(fleet.identity(name), "vision", DIGEST)


def refused(fleet: House, signature: ProgramSignature, **how: Any) -> Fault:
    with pytest.raises(Unusable) as refusal:
        signer(fleet, signature, **how)
    return refusal.value.fault


def test_an_operators_signature_names_the_operator(fleet: House) -> None:
    signature = signed(fleet)
    assert signer(fleet, signature) == "alice"
    assert signer(fleet, signature, crl=b"") == "alice", "a fleet may have no list"
    over_the_wire = ProgramSignature.model_validate_json(signature.model_dump_json())
    assert signer(fleet, over_the_wire) == "alice"


@pytest.mark.parametrize(
    "what",
    [{"name": "other"}, {"digest": "40" * 32}, {"name": "visio", "digest": f"n{DIGEST}"}],
)
def test_a_signature_is_for_one_name_and_one_parcel(fleet: House, what: dict[str, str]) -> None:
    assert refused(fleet, signed(fleet), **what).code == "bad-signature"


NO_DER = base64.b64encode(bytes(72)).decode()


@pytest.mark.parametrize("value", ["", "%%%", "é", NO_DER])
def test_a_value_that_is_no_signature_is_refused(fleet: House, value: str) -> None:
    forged = signed(fleet).model_copy(update={"value": value})
    assert refused(fleet, forged).code == "bad-signature"


def test_what_another_key_signed_is_refused(fleet: House) -> None:
    alice, mallory = signed(fleet), signed(fleet, "operator:mallory")
    mixed = mallory.model_copy(update={"certificate": alice.certificate, "signer": "alice"})
    assert refused(fleet, mixed).code == "bad-signature"


def test_nobody_signs_in_the_name_of_another(fleet: House) -> None:
    lie = signed(fleet, "operator:mallory").model_copy(update={"signer": "alice"})
    refusal = refused(fleet, lie)
    assert refusal == Fault(code="other-signer", signer="alice", name="mallory")


@pytest.mark.parametrize("certificate", ["", "junk", "é\ud800", "-----BEGIN CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(fleet: House, certificate: str) -> None:
    forged = signed(fleet).model_copy(update={"certificate": certificate})
    assert refused(fleet, forged).code == "bad-certificate"


def test_a_certificate_of_another_ca_is_refused(fleet: House, tmp_path: Path) -> None:
    stranger = House.make(tmp_path / "elsewhere", at_s=FAKE_S)
    assert refused(fleet, signed(stranger)).code == "other-ca"
    own_ca = signed(fleet).model_copy(update={"certificate": stranger.authority.pem.decode()})
    assert refused(fleet, own_ca).code == "other-ca"


@pytest.mark.parametrize("name", ["pi", "observer:bob", "coordinator", "homeassistant"])
def test_only_operators_sign(fleet: House, name: str) -> None:
    identity = fleet.identity(name)
    with pytest.raises(ConfigError, match=r"only operators sign programs; choose an operator's"):
        sign(identity, "vision", DIGEST)
    theirs = (identity / ids.CERTIFICATE_FILE).read_text()
    forged = signed(fleet).model_copy(update={"certificate": theirs, "signer": name})
    assert refused(fleet, forged) == Fault(code="no-operator", signer=name, name=name)


def test_a_signature_counts_while_its_certificate_is_valid(fleet: House) -> None:
    signature = sign(fleet.identity("operator:alice", days=2), "vision", DIGEST)
    assert signer(fleet, signature, now_s=FAKE_S + 2 * DAY_S) == "alice"
    late = refused(fleet, signature, now_s=FAKE_S + 2 * DAY_S + 1)
    assert (late.code, late.day) == ("expired", ids.day(FAKE_S + 2 * DAY_S))
    assert refused(fleet, signature, now_s=FAKE_S - DAY_S).code == "not-valid-yet"


def test_a_revoked_operator_is_refused_by_the_list_of_this_ca_alone(
    fleet: House, tmp_path: Path
) -> None:
    signature, bobs = signed(fleet), signed(fleet, "operator:bob")
    fleet.authority.revoke("operator:alice", FAKE_S)
    assert refused(fleet, signature).code == "signer-revoked"
    assert signer(fleet, bobs) == "bob"
    for other in (House.make(tmp_path / "elsewhere", at_s=FAKE_S).crl, b"junk", fleet.crl[:200]):
        assert refused(fleet, bobs, crl=other).code == "bad-crl"


def test_an_identity_that_is_not_whole_signs_nothing(fleet: House) -> None:
    alice, bob = fleet.identity("operator:alice"), fleet.identity("operator:bob")
    (alice / ids.KEY_FILE).write_bytes((bob / ids.KEY_FILE).read_bytes())
    with pytest.raises(ConfigError, match="the key does not belong to the certificate"):
        sign(alice, "vision", DIGEST)
    (bob / ids.KEY_FILE).unlink()
    with pytest.raises(ConfigError, match=r"client\.key: cannot be read"):
        sign(bob, "vision", DIGEST)
