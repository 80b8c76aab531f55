"""When a host asks for its next certificate, and which answers it takes. Does no IO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.clock import Now, Randomness, backoff_s
from broker.errors import BadMessage
from broker.protocol import messages as m

LEFT_SHARE: Final = 1 / 3
JITTER_SHARE: Final = 1 / 30
RETRY_S: Final = 60.0
RETRY_CAP_S: Final = 3600.0


class Renewal:
    """Asks in time, and again until there is an answer.

    A certificate's time is told by the wall clock, which may jump: it is looked at once an hour.
    """

    def __init__(
        self, begins_s: float, ends_s: float, rng: Randomness, new_id: Callable[[], str]
    ) -> None:
        """Begin with a certificate's validity, in seconds since the epoch."""
        self._rng = rng
        self._new_id = new_id
        self._asked: m.CertificateRequest | None = None
        self.renewed(begins_s, ends_s)

    def renewed(self, begins_s: float, ends_s: float) -> None:
        """A certificate was taken: nothing is to be asked until that one nears its end."""
        validity_s = ends_s - begins_s
        self._due_s = ends_s - validity_s * (LEFT_SHARE - JITTER_SHARE * self._rng.random())
        self._asked = None
        self._failures = 0
        self._at_mono_s = 0.0

    def next_deadline(self) -> float:
        """Return when to call `due` next, on the monotonic clock."""
        return self._at_mono_s

    def due(self, now: Now) -> bool:
        """Tell whether a request is to be sent now; sets the next deadline."""
        if now.mono_s < self._at_mono_s:
            return False
        if now.wall_s < self._due_s:
            self._at_mono_s = now.mono_s + min(RETRY_CAP_S, self._due_s - now.wall_s + 1.0)
            return False
        wait_s = max(RETRY_S, backoff_s(self._failures, 2 * RETRY_S, RETRY_CAP_S, self._rng))
        self._at_mono_s = now.mono_s + wait_s
        self._failures += 1
        return True

    def ask_at_once(self) -> None:
        """Call `due` again: there is a connection now."""
        self._failures = 0
        self._at_mono_s = 0.0

    @property
    def asked(self) -> m.CertificateRequest | None:
        """The request that is to be sent again, the same each time; none before the first."""
        return self._asked

    def request(self, pem: str) -> m.CertificateRequest:
        """Return the request to send, for a PKCS #10 in PEM; of two, the first stays."""
        if self._asked is None:
            self._asked = m.CertificateRequest(id=self._new_id(), request=pem)
        return self._asked

    def answer(self, payload: bytes) -> m.CertificateResponse | None:
        """Return the answer if it is one to the last request, else none."""
        try:
            response = m.decode(m.CERTIFICATE_RESPONSE, payload)
        except BadMessage:
            return None
        return response if self._asked is not None and response.id == self._asked.id else None
