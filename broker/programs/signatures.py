"""Signatures of programs: ECDSA on P-256 with SHA-256, by the key of an operator's certificate.

Signed are the program's name and the digest of its parcel. The certificate comes with the
signature, so that a host can check it against the CA and the revocation list alone. This module
loads `cryptography`, which takes 11 MiB: import it where a signature is made or checked.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from broker.errors import ConfigError
from broker.pki import certificates as certs
from broker.pki import keyfiles
from broker.pki.identity import CA_FILE, CERTIFICATE_FILE, KEY_FILE, day
from broker.programs.unusable import Unusable
from broker.protocol.acl import Principal
from broker.protocol.messages import ProgramSignature
from broker.protocol.topic_table import Role

_PURPOSE: Final = b"fleet program\0"  # the key signs in TLS handshakes as well
_ALGORITHM: Final = ec.ECDSA(hashes.SHA256())


def sign(identity: Path, name: str, digest: str) -> ProgramSignature:
    """Sign a program's name and its parcel's digest with the identity in a folder.

    Raises `ConfigError` when that is not a complete identity, or not an operator's.
    """
    keyfiles.check_secret(identity / KEY_FILE)
    certificate = certs.read_certificate(identity / CERTIFICATE_FILE)
    key = certs.read_key(identity / KEY_FILE)
    begins_s, _ = certs.validity_s(certificate)  # who checks it knows the time
    authority = certs.read_certificate(identity / CA_FILE)
    certs.check_parts(str(identity), authority, certificate, key, begins_s)
    common_name = certs.common_name(certificate)
    signer = _operator(common_name)
    if signer is None:
        raise ConfigError(
            f"{identity}: is the identity of {common_name}, and only operators sign programs; "
            "choose an operator's by --identity"
        )
    value = base64.b64encode(key.sign(_signed(name, digest), _ALGORITHM)).decode()
    pem = certs.certificate_pem(certificate).decode()
    return ProgramSignature(signer=signer, certificate=pem, value=value)


def check(
    signature: ProgramSignature, name: str, digest: str, ca: bytes, crl: bytes, now_s: float
) -> str:
    """Return the operator who signed a program, such as `alice`. Raises `Unusable`.

    `ca` is the fleet's CA and `crl` its revocation list, both PEM; an empty `crl`: no list is
    known, so nobody is revoked. `now_s` is in seconds since the epoch. Raises `ConfigError` when
    `ca` is no certificate.
    """
    authority = certs.parse_certificate(ca, "the fleet's CA")
    try:
        certificate = _issued(signature.certificate, authority)
        _check_owner(certificate, signature.signer)
        _check_time(certificate, now_s)
        if crl:
            _check_revoked(certificate, authority, crl)
        _check_value(certificate, signature.value, _signed(name, digest))
    except Unusable as refusal:
        refusal.fault = refusal.fault.model_copy(update={"signer": signature.signer})
        raise
    return signature.signer


def _signed(name: str, digest: str) -> bytes:
    return _PURPOSE + name.encode() + b"\0" + digest.encode()


def _operator(common_name: str) -> str | None:
    """Return an operator's name without the role; none if it is not an operator's."""
    try:
        if Principal.parse(common_name).role is not Role.OPERATOR:
            return None
    except ConfigError:
        return None
    return common_name.partition(":")[2]


def _issued(pem: str, authority: x509.Certificate) -> x509.Certificate:
    """Return a certificate in PEM that the CA has issued."""
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
    except Exception:  # noqa: BLE001 - whatever a stranger's bytes do to the parser
        raise Unusable("bad-certificate") from None
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - likewise: an unknown algorithm has an error of its own
        raise Unusable("other-ca") from None
    return certificate


def _check_owner(certificate: x509.Certificate, signer: str) -> None:
    common_name = certs.common_name(certificate)
    owner = _operator(common_name)
    if owner is None:
        raise Unusable("no-operator", name=common_name)
    if owner != signer:
        raise Unusable("other-signer", name=owner)


def _check_time(certificate: x509.Certificate, now_s: float) -> None:
    begins_s, ends_s = certs.validity_s(certificate)
    if now_s < begins_s:
        raise Unusable("not-valid-yet", day=day(begins_s))
    if now_s > ends_s:
        raise Unusable("expired", day=day(ends_s))


def _check_revoked(certificate: x509.Certificate, authority: x509.Certificate, pem: bytes) -> None:
    """Refuse a revoked certificate, and every one where the list is not the CA's own."""
    key = authority.public_key()
    try:
        crl = x509.load_pem_x509_crl(pem)
        is_ours = isinstance(key, ec.EllipticCurvePublicKey) and crl.is_signature_valid(key)
        entry = crl.get_revoked_certificate_by_serial_number(certificate.serial_number)
    except Exception:  # noqa: BLE001 - it may have come over the wire
        raise Unusable("bad-crl") from None
    if not is_ours:
        raise Unusable("bad-crl")
    if entry is not None:
        raise Unusable("signer-revoked")


def _check_value(certificate: x509.Certificate, value: str, signed: bytes) -> None:
    key = certificate.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise Unusable("bad-signature")
        key.verify(base64.b64decode(value, validate=True), signed, _ALGORITHM)
    except (InvalidSignature, ValueError):
        raise Unusable("bad-signature") from None
