"""The broker's certificates and its list of revocations."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.embedded.tls import Identity
from tests.harness.certificates import HOUR, Authority


def test_that_certificates_are_revoked_is_logged_when_their_number_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at each enrolment, which writes the list anew."""
    authority = Authority(tmp_path / "broker")
    identity = Identity(authority.broker())
    with caplog.at_level("INFO"):
        authority.revoke()
        identity.refresh()
        assert "revoked" not in caplog.text
        authority.revoke(authority.named("pi"))
        identity.refresh()
        assert "certificates revoked: 1" in caplog.text
        caplog.clear()
        authority.revoke(lasts=3 * HOUR)
        identity.refresh()
    assert "revoked" not in caplog.text
