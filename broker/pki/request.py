"""A program that makes a certificate signing request, for one that has no cryptography loaded.

    python -m broker.pki.request FOLDER NAME

It prints a PKCS #10 (RFC 2986) in PEM for the key of the identity in FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

from broker.errors import ConfigError
from broker.pki import certificates as certs
from broker.pki.identity import KEY_FILE


def main(folder: str, name: str) -> int:
    """Print the request; return 2, with the reason as an error, when the key cannot be read."""
    try:
        key = certs.read_key(Path(folder) / KEY_FILE)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(certs.request_pem(key, name).decode("ascii"))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
