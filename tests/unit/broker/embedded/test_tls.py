"""The broker's certificates and its list of revocations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from broker.embedded.tls import Identity
from broker.errors import ConfigError
from broker.pki import certificates as certs
from tests.harness.secure import House


def test_that_certificates_are_revoked_is_logged_when_their_number_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at each enrolment, which writes the list anew."""
    house = House.make(tmp_path)
    identity = Identity(house.broker)
    with caplog.at_level("INFO"):
        house.publish()
        identity.refresh()
        assert "revoked" not in caplog.text
        house.revoke("pi")
        identity.refresh()
        assert "certificates revoked: 1" in caplog.text
        caplog.clear()
        house.identity("gpu")
        house.publish()
        identity.refresh()
    assert "revoked" not in caplog.text


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda folder: (folder / "ca.crt").unlink(), "ca.crt is missing; 'fleet init'"),
        (lambda folder: (folder / "broker.key").unlink(), "broker.key is missing; 'fleet init'"),
        (lambda folder: (folder / "ca.crt").write_text("x"), "ca.crt: no certificate in it"),
        (lambda folder: (folder / "broker.crt").write_text("x"), "do not go together"),
        (lambda folder: (folder / "crl.pem").write_text("x"), "crl.pem: cannot be read"),
        (
            lambda folder: (folder / "broker.key").write_bytes(
                certs.new_key().private_bytes(
                    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
                )
            ),
            "the key must not be encrypted",
        ),
    ],
    ids=["no CA", "no key", "CA", "certificate", "list", "encrypted key"],
)
def test_an_identity_that_is_not_usable_is_told(
    tmp_path: Path, break_it: Callable[[Path], object], told: str
) -> None:
    folder = House.make(tmp_path).broker
    break_it(folder)
    with pytest.raises(ConfigError) as caught:
        Identity(folder)
    assert told in str(caught.value)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
