"""Why a broker cannot be reached, in words, and what to do about it."""

from __future__ import annotations

import ssl
from typing import Final

from broker.errors import plain

NOT_TLS: Final = "does that port speak TLS? if not, write mqtt://"
_WHOSE_CA: Final = "is it a broker of this fleet? docs/how-to/identity.md"
_WRONG_NAME: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH


def connect_fault(error: Exception, host: str, let_in: str) -> tuple[str, str]:
    """Return a failure to connect in words, and what to do about it.

    OpenSSL's words are for those who know its source.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        said = f"the broker's certificate does not hold: {error.verify_message.rstrip('.')}"
        if error.verify_code not in _WRONG_NAME:
            return said, _WHOSE_CA
        return said, f"`fleet init --broker {host}` on the CA's machine adds that name to it"
    if isinstance(error, ssl.SSLError):
        said = (error.reason or str(error)).replace("_", " ").lower()
        # Whoever speaks TLS and does not like a certificate says so.
        is_tls = error.reason != "WRONG_VERSION_NUMBER" and not isinstance(error, ssl.SSLEOFError)
        return f"no TLS with this broker: {said}", let_in if is_tls else NOT_TLS
    return plain(error), ""
