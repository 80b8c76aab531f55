"""What stands before the pages: whose browser it is, and from which site it was sent.

- A name in `Host` that is not ours is refused: another site's name may be made to point at this
  machine (DNS rebinding), and its scripts would then read along.
- What changes something, and every websocket, has to come from our own pages (`Origin`): NiceGUI's
  websocket takes any origin by itself.
- Headers that proxies set are dropped, since nobody here vouches for them; by what address browsers
  come through a proxy, the settings say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse

from broker.clock import Clock
from coordinator.web.sessions import Door
from coordinator.web.settings import WebSettings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE: Final = "fleet_session"
# Everything from here, nothing from elsewhere. NiceGUI needs inline scripts and `new Function`.
POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self'"
)
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# What needs no password on a private page: the way to give it, and files of ours that it needs.
_OPEN: Final = frozenset({"/login", "/favicon.ico"})
_FILES: Final = "/fleet/"


class Guard:
    """The outermost part of the application."""

    def __init__(
        self, app: App, settings: WebSettings, door: Door, machine: str, clock: Clock
    ) -> None:
        """Take the application; `machine` is this machine's own name."""
        self._app = app
        self._clock = clock
        self._settings = settings
        self._door = door
        own = machine.casefold().rstrip(".")
        self._public_name = urlsplit(settings.public_url).hostname or ""
        names = {"localhost", settings.host.casefold(), own, own.partition(".")[0]}
        names |= {f"{own.partition('.')[0]}.local", self._public_name}
        names |= {name.casefold().rstrip(".") for name in settings.names}
        self._names = frozenset(names - {""})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or refuse it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refused = self.refusal(scope["type"], scope.get("method", ""), headers)
        if refused:
            await _refuse(scope, receive, send, refused)
            return
        if self._settings.private and not self._may_look(scope["path"], headers):
            answer = RedirectResponse("/login", 303) if scope["type"] == "http" else None
            await (_refuse(scope, receive, send, "log in") if answer is None
                   else answer(scope, receive, send))  # fmt: skip
            return
        scope["headers"] = [
            (name, value) for name, value in scope["headers"]
            if not name.startswith(b"x-forwarded-") and name != b"forwarded"
        ]  # fmt: skip
        await self._app(scope, receive, _with_headers(send, self._settings.scheme))

    def refusal(self, kind: str, method: str, headers: dict[bytes, str]) -> str:
        """Return why a request is refused, in words for whoever reads it; empty: it is not."""
        host = headers.get(b"host", "")
        if not self._is_ours(host):
            name = _name(host)
            return (
                f"this page is not called {name!r}; start `fleet dashboard` with --name {name} "
                "if it should be"
            )
        changes = kind == "websocket" or method not in {"GET", "HEAD", "OPTIONS"}
        # Polling, which Socket.IO falls back to, is a websocket by other means.
        origin = headers.get(b"origin")
        if origin is None:
            return "no Origin: a browser says where it comes from" if changes else ""
        if not changes or origin in self._origins(host):
            return ""
        where = f" than {self._settings.public_origin}" if self._is_public(host) else ""
        return f"this was sent from another site{where}"

    def _origins(self, host: str) -> set[str]:
        """Return from where a page that is called by this `Host` may send something."""
        own, public = f"{self._settings.scheme}://{host}", self._settings.public_origin
        if not self._settings.public_url:
            return {own}
        # A page of the public name without TLS is made by anybody who is on the way to it.
        return {public} if self._is_public(host) else {own, public}

    def _is_public(self, host: str) -> bool:
        return bool(self._public_name) and _name(host) == self._public_name

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        try:
            ip_address(name)
        except ValueError:
            return name in self._names
        return True  # nobody can make an address point elsewhere

    def _may_look(self, path: str, headers: dict[bytes, str]) -> bool:
        if path in _OPEN or path.startswith(_FILES):
            return True
        return self._door.is_open(session_word(headers.get(b"cookie", "")), self._clock().mono_s)


def session_word(cookies: str) -> str | None:
    """Return the session's word in a Cookie header, if there is one."""
    try:
        found = SimpleCookie(cookies[:4096]).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").casefold().rstrip(".")
    except ValueError:
        return ""


def _with_headers(send: Send, scheme: str) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"] = list(message.get("headers", ()))
            headers += _HEADERS
            if scheme == "https":
                headers.append((b"strict-transport-security", b"max-age=31536000"))
            if not any(name.lower() == b"content-security-policy" for name, _ in headers):
                headers.append((b"content-security-policy", POLICY.encode()))
        await send(message)

    return sending


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()  # the handshake; refused before it is taken
        await send({"type": "websocket.close", "code": 1008})
        return
    await PlainTextResponse(why + "\n", 403)(scope, receive, send)
