"""What is no page of NiceGUI's: logging in and out, artifacts, reports, our own files."""

from __future__ import annotations

import functools
import re
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)  # fmt: skip
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from broker.errors import FleetError, plain
from broker.protocol.messages import AskShow, JobRow
from broker.system.machine import new_id
from coordinator.web.frame import Site
from coordinator.web.security import COOKIE, SESSION_S, local_path, session_token

STATIC: Final = Path(__file__).parent / "static"
MAX_FORM_BYTES: Final = 4_096
# A report is a stranger's page: it may draw, and nothing else.
REPORT_POLICY: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "frame-ancestors 'self'"
)
_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LOGIN: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · training fleet</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/fleet/icon.svg"><link rel="stylesheet" href="/fleet/fleet.css">
<script src="/fleet/page.js"></script></head>
<body><script>fleet.early()</script>
<main class="login"><section class="card"><form method="post" action="/login">
<p class="brand">training fleet</p>
<h1>Log in</h1>
<p class="note" id="hint">{hint}</p>
{problem}
{fields}
{look}
</form></section></main></body></html>
"""
_FIELDS: Final = """<input type="hidden" name="next" value="{path}">
<label class="field" for="password">Password</label>
<input id="password" type="password" name="password" autocomplete="current-password" required
  autofocus aria-describedby="hint">
<button class="button primary" type="submit">Log in</button>"""
_LOOK: Final = '<a class="button quiet" href="/">Look without logging in</a>'
HINT: Final = (
    "Who logs in may cancel and requeue jobs, drain and snooze hosts, and pause the fleet. The "
    "password is the one that <code>fleet dashboard</code> printed when it started, or that is in "
    "its <code>--password-file</code>."
)
NOBODY: Final = (
    "Nobody can: this page is <b>read only</b>. The process that serves it is {user} to the fleet, "
    "and may not give commands."
)


def routes(site: Site) -> list[BaseRoute]:
    """Return everything that is served beside the pages."""

    async def login(request: Request) -> Response:
        path = local_path(request.query_params.get("next"))
        if request.method == "GET":
            return _page(site, path)
        form = await _form(request)
        path = local_path(form.get("next"))
        now_s = site.clock().mono_s
        wait_s = site.sessions.wait_s(now_s)
        if wait_s > 0.0:
            text = f"Too many wrong passwords. Try again in {wait_s:.0f} s."
            return _page(site, path, text, 429)
        token = site.sessions.start(form.get("password", ""), now_s)
        if token is None:
            return _page(site, path, "That is not the password.", 403)
        answer = RedirectResponse(path, 303)
        answer.set_cookie(
            COOKIE, token, max_age=round(SESSION_S), httponly=True, samesite="strict",
            # The guard has checked what the browser calls us: behind a proxy, its address.
            secure=request.headers.get("origin", "").startswith("https:"),
        )  # fmt: skip
        return answer

    async def logout(request: Request) -> Response:
        site.sessions.end(session_token(request.headers.get("cookie", "")))
        site.hub.refresh()  # the other windows of this session learn that it is over
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(COOKIE)
        return answer

    async def report(request: Request) -> Response:
        found = site.artifacts.known_report(request.path_params["artifact_id"])
        if found is None or found.page is None:
            return PlainTextResponse("there is no such report\n", 404)
        headers = {"content-security-policy": REPORT_POLICY}
        return FileResponse(found.page, media_type="text/html; charset=utf-8", headers=headers)

    artifact = functools.partial(_artifact, site)
    return [
        Route("/login", login, methods=["GET", "POST"]),
        Route("/logout", logout, methods=["POST"]),
        Route("/artifact/{job_id}", artifact),
        Route("/artifact/{job_id}/{attempt}", artifact),
        Route("/report/{artifact_id}", report),
        Mount("/fleet", StaticFiles(directory=STATIC)),
    ]


async def _artifact(site: Site, request: Request) -> Response:
    """Hand out what a job has, or what an attempt of it has brought."""
    row = site.hub.seen.jobs.get(request.path_params["job_id"])
    attempt: str | None = request.path_params.get("attempt")
    if row is None:
        return PlainTextResponse("there is no such job\n", 404)
    try:
        number, artifact_id = None, row.artifact_id
        if attempt is not None:
            number, artifact_id = await _brought(site, row, attempt)
        if artifact_id is None:
            return PlainTextResponse("there is no such artifact\n", 404)
        path = await site.artifacts.get(row.job_id, artifact_id, attempt=number)
    except (FleetError, OSError) as error:
        return PlainTextResponse(f"the artifact did not come: {plain(error)}\n", 502)
    name = _PLAIN.sub("_", row.name)[:80].lstrip("._") or row.job_id[:12]
    name += "" if attempt is None else f"-attempt-{attempt}"
    return FileResponse(
        path, media_type="application/zstd", filename=f"{name}.tar.zst",
        headers={"x-artifact-sha256": artifact_id},
    )  # fmt: skip


async def _brought(site: Site, row: JobRow, attempt: str) -> tuple[int | None, str | None]:
    """Return an attempt's number and artifact, if that is there. Raises `FleetError`."""
    shown = await site.hub.ask(AskShow(id=new_id(), job=row.job_id))
    for one in shown["results"]:
        if one["is_there"] and str(one["attempt"]) == attempt:
            return one["attempt"], one["artifact_id"]
    return None, None


def _page(site: Site, path: str, problem: str = "", code: int = 200) -> HTMLResponse:
    may = site.sessions.password is not None
    said = f'<p class="bad" role="alert">{escape(problem)}</p>' if problem else ""
    hint = HINT if may else NOBODY.format(user=escape(site.hub.watcher.user))
    fields = _FIELDS.replace("{path}", escape(path)) if may else ""
    look = "" if site.settings.private else _LOOK
    text = _LOGIN.replace("{hint}", hint).replace("{problem}", said)
    text = text.replace("{fields}", fields).replace("{look}", look)
    return HTMLResponse(text, code, {"cache-control": "no-store"})


async def _form(request: Request) -> dict[str, str]:
    """Return a small form's fields; what is too large is empty."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            return {}
    try:
        fields = parse_qs(body.decode("utf-8"), max_num_fields=10)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}
