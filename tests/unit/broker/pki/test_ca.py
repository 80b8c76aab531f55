"""The CA: what its certificates are good for, and what it remembers."""

from __future__ import annotations

import json
import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.errors import ConfigError
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki.ca import Authority, Issued, alternative_names, describe, is_node, public_key
from broker.pki.identity import DAY_S
from broker.protocol.acl import Principal
from coordinator.cli.lists import _near_its_end

NOW_S = 1.8e9
PUBLIC = certs.new_key().public_key()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca", NOW_S)


def _load(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _use(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def _revoked(authority: Authority) -> set[int]:
    crl = x509.load_pem_x509_crl((authority.folder / "crl.pem").read_bytes())
    assert crl.is_signature_valid(authority.certificate.public_key())  # type: ignore[arg-type]
    return {entry.serial_number for entry in crl}


def test_the_ca_signs_and_lets_nobody_below_it_sign(authority: Authority) -> None:
    certificate = authority.certificate
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.key_cert_sign, usage.crl_sign, usage.digital_signature) == (True, True, False)
    public = certificate.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert isinstance(public.curve, ec.SECP256R1)
    assert certs.validity_s(certificate)[1] == NOW_S + 3650 * DAY_S


def test_an_identity_knows_when_it_begins_and_ends(authority: Authority, tmp_path: Path) -> None:
    key, at_s = certs.new_key(), NOW_S + 18.123 * DAY_S
    made = authority.issue(key.public_key(), "pi", at_s)
    ids.write_identity(tmp_path / "pi", authority.pem, made, certs.key_pem(key))
    found = ids.load_identity(tmp_path / "pi", at_s)
    assert (found.begins_s, found.ends_s) == certs.validity_s(_load(made))


def test_a_certificate_says_who_and_is_good_for_one_thing(authority: Authority) -> None:
    client = _load(authority.issue(PUBLIC, "operator:alice", NOW_S))
    assert certs.common_name(client) == "operator:alice"
    assert _use(client) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    begins_s, ends_s = certs.validity_s(client)
    assert begins_s <= NOW_S
    assert ends_s == NOW_S + 365 * DAY_S
    server = _load(authority.issue_broker(PUBLIC, ["pi.lan", "192.0.2.7", "::1"], NOW_S))
    assert _use(server) == [ExtendedKeyUsageOID.SERVER_AUTH]
    node = _load(authority.issue_broker(PUBLIC, ["pi.lan"], NOW_S, node=True))
    assert _use(node) == [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    assert (is_node(server), is_node(node)) == (False, True)
    with pytest.raises(ConfigError, match="is nobody's name"):
        Principal.parse(certs.common_name(node))
    assert alternative_names(server) == ["pi.lan", "192.0.2.7", "::1"]
    for one in (client, server):
        assert not one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        one.verify_directly_issued_by(authority.certificate)


def test_nothing_outlives_the_ca(authority: Authority) -> None:
    late_s = NOW_S + 3600 * DAY_S
    assert certs.validity_s(_load(authority.issue(PUBLIC, "pi", late_s)))[1] == NOW_S + 3650 * DAY_S
    with pytest.raises(ConfigError, match="the CA ended"):
        authority.issue(PUBLIC, "gpu", NOW_S + 3700 * DAY_S)


@pytest.mark.parametrize(
    "name",
    ["", "jobs", "operator", "../pi", "pi/x", "PI", "operator:", "a b", "pi\x00", "nul", "con.x"],
)  # fmt: skip
def test_nobodys_name_gets_no_certificate(authority: Authority, name: str) -> None:
    with pytest.raises(ConfigError):
        authority.issue(PUBLIC, name, NOW_S)
    assert authority.issued() == []


def test_of_a_request_only_the_key_counts(authority: Authority) -> None:
    key = certs.new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coordinator")])
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("pi.lan")]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    made = _load(authority.issue(public_key(request), "pi", NOW_S))
    assert certs.common_name(made) == "pi"
    assert made.public_key() == key.public_key()
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert alternative_names(made) == []
    assert _use(made) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def _rsa_request() -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    key = rsa.generate_private_key(65537, 2048)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _forged_request() -> bytes:
    lines = certs.request_pem(certs.new_key(), "pi").splitlines()
    body = bytearray(lines[-2])
    body[4] = ord("A") if body[4] != ord("A") else ord("B")
    return b"\n".join([*lines[:-2], bytes(body), lines[-1]])


@pytest.mark.parametrize(
    "request_",
    [b"", b"\xff" * 100, _rsa_request(), _forged_request(), b"-----BEGIN CERTIFICATE-----"],
)  # fmt: skip
def test_what_is_no_request_is_refused(authority: Authority, request_: bytes) -> None:
    with pytest.raises(ConfigError, match="the certificate request is none"):
        authority.issue(public_key(request_), "pi", NOW_S)
    assert authority.issued() == []


def test_a_name_has_one_certificate_that_holds(authority: Authority) -> None:
    first = _load(authority.issue(PUBLIC, "pi", NOW_S))
    with pytest.raises(ConfigError, match=r"pi has a certificate until .* --replace"):
        authority.issue(PUBLIC, "pi", NOW_S)
    assert _revoked(authority) == set()
    authority.issue(PUBLIC, "pi", NOW_S, replace=True)
    assert _revoked(authority) == {first.serial_number}
    authority.issue(PUBLIC, "gpu", NOW_S)
    assert _revoked(authority) == {first.serial_number}


def test_what_is_revoked_is_on_the_list_and_stays_there(authority: Authority) -> None:
    """Across restarts; the list never ends before the CA, or a broker would let nobody in."""
    made = _load(authority.issue(PUBLIC, "pi", NOW_S))
    (ended,) = authority.revoke("pi", NOW_S + 10)
    assert (ended.name, int(ended.serial, 16)) == ("pi", made.serial_number)
    assert ended.fingerprint == certs.fingerprint(made).hex()
    again = Authority(authority.folder)
    assert again.revoke("pi", NOW_S + 20) == []
    assert _revoked(again) == {made.serial_number}
    crl = x509.load_pem_x509_crl((authority.folder / "crl.pem").read_bytes())
    assert crl.next_update_utc == authority.certificate.not_valid_after_utc
    authority.issue(PUBLIC, "pi", NOW_S + 30)  # a revoked host may come again


def test_a_list_that_a_crash_left_behind_is_mended(authority: Authority) -> None:
    """The registry was written, the list was not: the same command again writes it."""
    made = _load(authority.issue(PUBLIC, "pi", NOW_S))
    before = (authority.folder / "crl.pem").read_bytes()
    authority.revoke("pi", NOW_S)
    (authority.folder / "crl.pem").write_bytes(before)
    assert authority.revoke("pi", NOW_S) == []
    assert _revoked(authority) == {made.serial_number}


def test_what_ended_long_ago_is_forgotten(authority: Authority) -> None:
    authority.issue(PUBLIC, "pi", NOW_S, days=10)
    authority.revoke("pi", NOW_S)
    authority.issue(PUBLIC, "gpu", NOW_S + 370 * DAY_S)
    assert [one.name for one in authority.issued()] == ["pi", "gpu"]
    authority.issue(PUBLIC, "nas", NOW_S + 380 * DAY_S)
    assert [one.name for one in authority.issued()] == ["gpu", "nas"]
    assert _revoked(authority) == set()


@pytest.mark.posix  # modes are of POSIX
def test_secrets_are_nobodys_business(authority: Authority) -> None:
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in [authority.folder, *authority.folder.iterdir()]
    }
    assert modes["ca"] == 0o700
    assert modes["ca.key"] == modes["registry.json"] == 0o600
    assert not [name for name in modes if "making" in name]


@pytest.mark.posix  # modes are of POSIX
def test_a_key_is_never_readable_by_others_not_even_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = os.open

    def spy(path: str, flags: int, mode: int = 0o777) -> int:
        descriptor = real(path, flags, mode)
        if flags & os.O_CREAT:
            seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", spy)
    old = os.umask(0)
    try:
        ids.write_identity(tmp_path / "x", b"ca", b"crt", b"key")
    finally:
        os.umask(old)
    assert seen == [0o600, 0o644, 0o644]
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o700


@pytest.mark.posix  # modes are
def test_a_ca_that_is_not_whole_is_told(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no CA here; make one with `fleet init`"):
        Authority(tmp_path / "nowhere")
    (authority.folder / "registry.json").write_text("{")
    with pytest.raises(ConfigError, match=r"registry\.json: is damaged"):
        authority.issue(PUBLIC, "pi", NOW_S)
    (authority.folder / "registry.json").write_text(json.dumps({"issued": [{"name": "pi"}]}))
    with pytest.raises(ConfigError, match=r"registry\.json: is damaged"):
        authority.issued()
    (authority.folder / "ca.key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Authority(authority.folder)
    (authority.folder / "ca.key").write_bytes(b"?")
    (authority.folder / "ca.key").chmod(0o600)
    with pytest.raises(ConfigError, match=r"ca\.key: is not a private key"):
        Authority(authority.folder)


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone is the system's there")
def test_the_end_of_a_certificate_is_told_by_this_machine_s_clock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    late_s = datetime(2030, 5, 28, 23, 30, tzinfo=UTC).timestamp()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert ids.day(late_s) == "2030-05-29"
        assert describe(Issued("pi", "1", "", late_s)).endswith("until 2030-05-29")
        row = {"host": "pi", "capability": {"certificate_expires_at": "2020-05-28T23:30:00Z"}}
        (said,) = _near_its_end(row)
        assert said.startswith("its certificate ended on 2020-05-29; ")
    finally:
        monkeypatch.undo()
        time.tzset()
