"""Headless Chromium, driven by its own protocol (CDP) over a websocket; no driver, no download.

`Browser` starts one and ends it; `Page` opens addresses, clicks, types, waits, takes pictures.
Whatever a page asks of another host is noted in `Page.elsewhere`, what it complains about in
`Page.complaints`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from PIL import Image
from websockets.sync.client import ClientConnection, connect

DEADLINE_S = 120.0
SETTLE_MS = 100  # a quick hand
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio",
    "--no-first-run", "--disable-extensions", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--disable-features=Translate,OptimizationHints,MediaRouter", "--force-color-profile=srgb",
)  # fmt: skip


def find_chromium() -> str | None:
    """Where a Chromium is, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One Chromium with a profile of its own, which goes with it."""

    def __init__(self) -> None:
        program = find_chromium()
        assert program is not None, "no Chromium here"
        self._profile = Path(tempfile.mkdtemp(prefix="fleet-browser-"))
        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, "HOME": str(self._profile)},
        )  # fmt: skip
        told = self._profile / "DevToolsActivePort"
        deadline_s = time.monotonic() + DEADLINE_S
        while not (told.exists() and told.read_text().count("\n")):
            assert self._process.poll() is None, "Chromium ended by itself"
            assert time.monotonic() < deadline_s, "Chromium does not listen"
            time.sleep(0.05)
        self._port = int(told.read_text().split("\n")[0])
        with urlopen(f"http://127.0.0.1:{self._port}/json/version", timeout=DEADLINE_S) as answer:
            url = json.load(answer)["webSocketDebuggerUrl"]
        self._all = Connection(url)
        self._contexts: list[str] = []

    def page(self, width: int = 1280, height: int = 800, *, dark: bool = False) -> Page:
        """A new window with cookies and storage of its own."""
        context = self._all.call("Target.createBrowserContext")["browserContextId"]
        target = self._all.call("Target.createTarget", url="about:blank", browserContextId=context)[
            "targetId"
        ]
        page = Page(Connection(f"ws://127.0.0.1:{self._port}/devtools/page/{target}"))
        self._contexts.append(context)
        page.begin(width, height, dark=dark)
        return page

    def close_pages(self) -> None:
        """Close every window: an open one goes on drawing what is news."""
        for context in self._contexts:
            self._all.call("Target.disposeBrowserContext", browserContextId=context)
        self._contexts.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE_S)
        shutil.rmtree(self._profile, ignore_errors=True)


class Connection:
    def __init__(self, url: str) -> None:
        self._socket: ClientConnection = connect(
            url,
            max_size=64 * 1024 * 1024,
            compression=None,
            open_timeout=DEADLINE_S,
            proxy=None,
            ping_interval=None,
        )
        self._ids = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method and return its result; events that come meanwhile are kept."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            message = json.loads(self._socket.recv(timeout=max(0.1, deadline_s - time.monotonic())))
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result
            if "method" in message:
                self.events.append(message)


class Page:
    def __init__(self, connection: Connection) -> None:
        self._cdp = connection
        self._host = ""
        self._read = 0  # of the events

    def begin(self, width: int, height: int, *, dark: bool) -> None:
        for domain in ("Page", "Runtime", "Network", "Log", "DOM", "Accessibility"):
            self._cdp.call(f"{domain}.enable")
        self.resize(width, height)
        self.dark(on=dark)

    def resize(self, width: int, height: int) -> None:
        """Give it a size in CSS pixels; below 600 it is a phone."""
        self._cdp.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def trust_everybody(self) -> None:
        self._cdp.call("Security.setIgnoreCertificateErrors", ignore=True)

    def dark(self, *, on: bool) -> None:
        value = "dark" if on else "light"
        self._cdp.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": value}],
        )

    def open(self, url: str) -> None:
        """Go there, and wait until it is loaded."""
        self._host = urlsplit(url).netloc
        self.run(f"window.stale = true; location.href = {json.dumps(url)}; 1")
        self.until("!window.stale && document.readyState === 'complete'", f"{url} to load")

    def run(self, code: str) -> Any:
        answer = self._cdp.call(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True,
            userGesture=True,
        )  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, code: str, what: str = "", deadline_s: float | None = None) -> Any:
        """Wait until an expression is true, and return it."""
        end_s = time.monotonic() + (deadline_s or DEADLINE_S)
        while True:
            self._load_again_if_broken_off()
            with contextlib.suppress(AssertionError):  # the page may be on its way elsewhere
                if value := self.run(
                    f"(() => {{ const it = {code}; return it instanceof Node ? true : it }})()"
                ):
                    return value
            assert time.monotonic() < end_s, (
                f"waited for {what or code}; it reads:\n{self.text()}\n{self.complaints}"
            )
            time.sleep(0.03)

    def _load_again_if_broken_off(self) -> None:
        """Load the page again if Chromium broke off a part of it.

        It does so when a network interface comes or goes: a test beside this one pulls a cable.
        """
        new, self._read = self._cdp.events[self._read :], len(self._cdp.events)
        if any(event["params"].get("errorText") == "net::ERR_NETWORK_CHANGED" for event in new):
            self.run("window.stale = true; 1")
            self._cdp.call("Page.reload")
            self.until("!window.stale && document.readyState === 'complete'", "the page, once more")
            self._cdp.events.clear()
            self._read = 0

    def until_text(self, text: str, inside: str = "body") -> None:
        """Wait until a text can be read."""
        self.until(
            f"[...document.querySelectorAll({json.dumps(inside)})]"
            f".some(one => one.innerText.includes({json.dumps(text)}))",
            f"{text!r} in {inside}",
        )

    def text(self, inside: str = "body") -> str:
        found: str = self.run(f"document.querySelector({json.dumps(inside)})?.innerText ?? ''")
        return found

    def click(self, inside: str, text: str = "") -> None:
        """Press the mouse on the first thing that fits a selector and has a text."""
        find = (
            f"[...document.querySelectorAll({json.dumps(inside)})].find(one => "
            f"one.checkVisibility() && one.textContent.trim().includes({json.dumps(text)}))"
        )
        self.until(find + " !== undefined", f"{text!r} in {inside}")
        # Somebody presses what has been drawn; what is replaced between down and up is not pressed.
        self.run(f"new Promise(done => setTimeout(() => done(1), {SETTLE_MS}))")
        self.until(find + " !== undefined", f"{text!r} in {inside}")
        x, y = self.run(
            f"(() => {{ const one = {find}; one.scrollIntoView({{block: 'center'}}); "
            "const box = one.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._cdp.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    def type(self, text: str) -> None:
        self._cdp.call("Input.insertText", text=text)

    def key(self, name: str, code: int = 0) -> None:
        """Press a key: Tab (9), Enter (13), Escape (27)."""
        more = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._cdp.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name,
                windowsVirtualKeyCode=code, **(more if kind == "keyDown" else {}),
            )  # fmt: skip

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Save what is to be seen as PNG."""
        more: dict[str, Any] = {}
        if whole:
            height = self.run("Math.ceil(document.documentElement.scrollHeight)")
            width = self.run("window.innerWidth")
            more = {"captureBeyondViewport": True, "clip": {
                "x": 0, "y": 0, "width": width, "height": height, "scale": 1}}  # fmt: skip
        data = self._cdp.call("Page.captureScreenshot", format="png", **more)["data"]
        path.write_bytes(base64.b64decode(data))

    def colour(self, x: float, y: float) -> tuple[int, ...]:
        """Red, green and blue of what is to be seen at a place of the document, in CSS pixels."""
        clip = {"x": x, "y": y, "width": 1, "height": 1, "scale": 1}
        data = self._cdp.call("Page.captureScreenshot", format="png", clip=clip)["data"]
        with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
            return picture.convert("RGB").getpixel((0, 0))

    def accessible(self) -> list[dict[str, Any]]:
        """The accessibility tree's nodes that are not ignored: role, name, properties."""
        nodes = self._cdp.call("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": node.get("role", {}).get("value", ""),
                "name": node.get("name", {}).get("value", ""),
                **{one["name"]: one["value"].get("value") for one in node.get("properties", ())},
            }
            for node in nodes
            if not node.get("ignored")
        ]

    @property
    def elsewhere(self) -> list[str]:
        """Addresses that were asked for and are not the page's own host's."""
        self.run("1")
        asked = [
            event["params"]["request"]["url"]
            for event in self._cdp.events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [
            url for url in asked
            if url.startswith(("http", "ws")) and urlsplit(url).netloc != self._host
        ]  # fmt: skip

    @property
    def complaints(self) -> list[str]:
        """Errors of its scripts, and what the browser refused."""
        self.run("1")
        found = []
        for event in self._cdp.events:
            what = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = what["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and what["type"] == "error":
                found.append(" ".join(str(arg.get("value", "")) for arg in what["args"]))
            elif event["method"] == "Log.entryAdded" and what["entry"]["level"] == "error":
                found.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")
        return found
