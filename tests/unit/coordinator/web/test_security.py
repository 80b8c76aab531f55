"""Who may reach the web page, by what name, from where, and who may change something."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.clock import Now
from coordinator.web.settings import WebSettings

pytest.importorskip("starlette", reason="the extra of the web page is not installed")
from coordinator.web.security import (
    COOKIE,
    SESSION_S,
    TRIES,
    TRIES_IN_S,
    Guard,
    Sessions,
    local_path,
    session_token,
)

OURS = "127.0.0.1:8086"
PASSWORD = "a long enough password"  # noqa: S105 - opens nothing


def test_the_password_starts_a_session_and_nothing_else_does() -> None:
    sessions = Sessions(PASSWORD)
    token = sessions.start(PASSWORD, 0.0)
    assert token is not None
    assert sessions.is_open(token, 1.0)
    for other in (None, "", "token-7", token + " ", "x" * 300, "\ud800"):
        assert not sessions.is_open(other, 1.0)
    for wrong in (PASSWORD + " ", ""):
        assert sessions.start(wrong, 1.0) is None
        assert Sessions(None).start(wrong, 0.0) is None, "nobody gets in without a password"


def test_a_session_ends_by_itself_and_by_a_logout() -> None:
    sessions = Sessions(PASSWORD)
    first, second = sessions.start(PASSWORD, 0.0), sessions.start(PASSWORD, 0.0)
    sessions.end(first)
    sessions.end("never heard of")
    assert not sessions.is_open(first, 1.0)
    assert sessions.is_open(second, SESSION_S - 1.0)
    assert not sessions.is_open(second, SESSION_S)


def test_guessing_is_slow_whoever_guesses() -> None:
    """After a few wrong passwords not even the right one is looked at, for a while."""
    sessions = Sessions(PASSWORD)
    for second in range(TRIES):
        assert sessions.wait_s(float(second)) == 0.0
        assert sessions.start("guess", float(second)) is None
    assert sessions.wait_s(10.0) == pytest.approx(TRIES_IN_S - 10.0)
    assert sessions.start(PASSWORD, 10.0) is None
    assert sessions.start(PASSWORD, TRIES_IN_S) is not None


@pytest.mark.parametrize(
    "path",
    [None, "", "jobs", "//evil.example", "/\\evil.example", "https://evil.example", "/\n/x",
     "\\\\evil", "/" + "x" * 600],
)  # fmt: skip
def test_a_login_leads_back_to_a_page_of_ours_alone(path: str | None) -> None:
    """A link that somebody has prepared does not send a browser on."""
    assert local_path(path) == "/"
    assert local_path("/jobs?state=failed") == "/jobs?state=failed"


class _Served:
    """An application behind the guard; it keeps what got through."""

    def __init__(self, **settings: Any) -> None:
        self.through: list[dict[str, Any]] = []
        self.sessions = Sessions(PASSWORD)
        self.now = Now(0.0, 0.0)
        self.guard = Guard(
            self._app, WebSettings(**settings), self.sessions, "pi.example", lambda: self.now
        )

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.through.append(scope)
        kind = scope["type"]
        start = {"type": "http.response.start", "status": 200, "headers": []}
        await send(start if kind == "http" else {"type": "websocket.accept"})

    def ask(self, kind: str = "http", method: str = "GET", path: str = "/", **headers: str) -> Any:
        """What is answered first: a status and headers, or a websocket's fate."""
        said: list[Any] = []

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            said.append(message)

        lines = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
        scope = {"type": kind, "method": method, "path": path, "headers": lines}
        asyncio.run(self.guard(scope, receive, send))
        return said[0]

    def status(self, *arguments: Any, **headers: str) -> int:
        found: int = self.ask(*arguments, **headers)["status"]
        return found


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ((OURS, "localhost:8086", "[::1]:8086", "192.168.1.7"), 200),
        (("pi.example", "PI", "pi.local:1"), 200),
        (("evil.example", "", "pi.example.evil.example", "127.0.0.1.nip.io"), 403),
    ],
    ids=["an address cannot be made to point elsewhere", "its names", "DNS rebinding"],
)
def test_it_is_called_by_its_own_names_and_by_any_address(
    hosts: tuple[str, ...], status: int
) -> None:
    served = _Served()
    assert [served.status(host=host) for host in hosts] == [status] * len(hosts)
    assert len(served.through) == (len(hosts) if status == 200 else 0)
    for name in ("evil.example", "Evil.example."):
        assert _Served(names=(name,)).status(host="evil.example") == 200


def test_what_changes_something_comes_from_our_own_pages() -> None:
    """A form or a websocket of another site, and one that does not say where it is, are refused."""
    served = _Served()
    others = [{}] + [
        {"origin": origin}
        for origin in ("https://evil.example", "null", "", f"https://{OURS}", "http://127.0.0.1:1")
    ]
    for headers in others:
        assert served.status("http", "POST", host=OURS, **headers) == 403
        assert served.ask("websocket", host=OURS, **headers)["type"] == "websocket.close"
    assert served.through == []
    own = {"host": OURS, "origin": f"http://{OURS}"}
    assert served.status("http", "POST", **own) == 200
    assert served.ask("websocket", **own)["type"] == "websocket.accept"


def test_every_answer_forbids_what_is_not_ours() -> None:
    served = _Served()
    headers = dict(served.ask(host=OURS)["headers"])
    policy = headers[b"content-security-policy"].decode()
    assert "default-src 'self'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'self'" in policy
    assert headers[b"x-content-type-options"] == b"nosniff"


def test_what_a_proxy_might_have_said_is_dropped() -> None:
    served = _Served()
    served.ask(host=OURS, x_forwarded_prefix="/evil", forwarded="for=1.2.3.4", accept="*/*")
    assert [name for name, _ in served.through[0]["headers"]] == [b"host", b"accept"]


def test_a_private_page_shows_nothing_without_the_password() -> None:
    """But the place to give it, and what that looks like."""
    served = _Served(private=True)
    answer = served.ask(host=OURS, path="/jobs")
    assert (answer["status"], dict(answer["headers"])[b"location"]) == (303, b"/login")
    own = {"host": OURS, "origin": f"http://{OURS}"}
    assert served.ask("websocket", path="/_nicegui_ws/", **own)["type"] == "websocket.close"
    for path in ("/login-page", "/login/", "/favicon.ico/x"):
        assert served.status("http", "GET", path, host=OURS) == 303, "it would be a page of ours"
    assert served.through == []
    assert served.status("http", "GET", "/login", host=OURS) == 200
    assert served.status("http", "GET", "/fleet/fleet.css", host=OURS) == 200
    for cookie in ("", "x", "a=b", "=;=;", "\x00" * 9000, COOKIE):
        assert session_token(cookie) is None
    token = served.sessions.start(PASSWORD, 0.0)
    cookie = f"other=1; {COOKIE}={token}"
    assert served.status("http", "GET", "/jobs", host=OURS, cookie=cookie) == 200
    served.now = Now(1e9, 1e9)
    assert served.status("http", "GET", "/jobs", host=OURS, cookie=cookie) == 303


def test_behind_a_proxy_its_address_is_ours_as_well() -> None:
    served = _Served(public_url="https://Fleet.example:443/")
    for host in ("fleet.example", "fleet.example:443", "Fleet.example.", OURS):
        assert served.status(method="POST", host=host, origin="https://fleet.example") == 200
        assert served.status(method="POST", host=host, origin="https://evil.example") == 403
    assert served.status(method="POST", host=OURS, origin="http://fleet.example") == 403
    assert served.status(method="POST", host=OURS, origin="") == 403
    assert served.ask("websocket", host=OURS, origin="https://fleet.example")["type"] == (
        "websocket.accept"
    )


def test_under_the_proxys_name_its_pages_alone_may_send_something() -> None:
    served = _Served(public_url="https://fleet.example", names=("fleet.example",))
    for host in ("fleet.example", "fleet.example:8086"):
        for origin in (f"http://{host}", "http://fleet.example"):
            assert served.status(method="POST", host=host, origin=origin) == 403
            assert served.ask("websocket", host=host, origin=origin)["type"] == "websocket.close"
    assert served.through == []
    own = {"host": "pi.example:8086", "origin": "http://pi.example:8086"}
    assert served.status(method="POST", **own) == 200
