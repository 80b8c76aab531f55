"""The web page as eyes, thumbs and keys meet it: on a phone, light and dark, without a mouse."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from tests.harness.browser import Browser, Page, find_chromium
from tests.harness.fleet import Fleet
from tests.harness.shown import Shown
from tests.harness.swarm import Swarm

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium on this machine"),
    pytest.mark.usefixtures("windows"),
]
LONG_HOST = "a-workstation-with-a-long-name-on-the-attics-2nd-floor"
HOSTS = ("pc-10", "pc-2", LONG_HOST)
PHONE = {"width": 390, "height": 844}
PATHS = (
    "/",
    "/jobs",
    "/curves",
    "/timeline",
    "/login",
    "/nowhere",
    "/host/pc-2",
    "running",
    "big-one",
)
DRAWN = (
    "document.querySelector('[data-ready], [data-series], [data-bars], .log, .login, h1 + .note')"
)
TOLD = "!document.body.innerText.includes('asking the coordinator')"


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, system_broker: str, browser: Browser
) -> Iterator[Shown]:
    """Three simulated hosts that train slowly, one of a long name; a job that none can take."""
    tmp = tmp_path_factory.mktemp("fleet")
    fleet = Fleet(tmp, system_broker, tmp)
    fleet.plan(
        *(f'model = "gbt"\nmode = "oracle"\nname = "gbt-{n:02}"\nseed = {n}' for n in range(12)),
        'model = "mlp"\nmode = "realistic"\nname = "big-one"\nrequire_cuda = true\n'
        "min_vram_gib = 900",
    )
    fleet.coordinator()
    over = threading.Event()
    swarm = Swarm(
        system_broker, fleet.root, len(HOSTS), rng=random.Random(1), speed=0.05, beat_s=1.0,
        fail_rate=0.0,
    )  # fmt: skip
    for host, name in zip(swarm.hosts.values(), HOSTS):
        host.name = name
    swarm.hosts = {host.name: host for host in swarm.hosts.values()}
    thread = threading.Thread(target=swarm.run, args=(over.is_set,), daemon=True)
    thread.start()
    made = Shown(fleet, browser)
    fleet.programs.append(made.program)
    yield made
    over.set()
    thread.join(20)
    fleet.close()


def _open(shown: Shown, page: Page, path: str) -> None:
    """Go to a page, or to that of a job that runs, or is called so; wait until it is whole."""
    if path == "running":
        path = f"/job/{shown.job('running')['job_id']}"
    elif not path.startswith("/"):
        rows = shown.fleet.client.list_jobs(["pending"])
        path = f"/job/{next(row for row in rows if row['name'] == path)['job_id']}"
    page.open(shown.url + path)
    page.until(DRAWN, f"{path} to be drawn")
    page.until(TOLD, f"{path} to be told")


# A question grows from nothing when it opens: whether it has.
GROWN = """(() => {
  const asked = document.querySelector(".q-dialog");
  const moving = asked.getAnimations({ subtree: true }).length;
  return !moving && asked.querySelector("#confirm").getBoundingClientRect().width > 0;
})()"""

# What is pressed and is smaller than a thumb, in CSS pixels; what makes a phone enlarge the page.
SMALL = """(() => {
  const found = [];
  for (const node of document.querySelectorAll("a, button, input, select")) {
    if (!node.checkVisibility() || node.closest(".skip, [aria-hidden=true]")) continue;
    const name = node.outerHTML.slice(0, 90);
    const pressed = node.matches("[type=radio], [type=checkbox]") ? node.closest("label") : node;
    const box = pressed.getBoundingClientRect();
    if (box.width < 40 || box.height < 40) found.push(`${name}: ${box.width}x${box.height}`);
    const letters = getComputedStyle(node).fontSize;
    if (node.matches("select, [type=search], [type=password]") && parseFloat(letters) < 16)
      found.push(`${name}: ${letters}`);
  }
  return found;
})()"""


def test_all_that_is_pressed_on_a_phone_is_as_large_as_a_thumb(shown: Shown) -> None:
    """On every page and in a question; and to type does not enlarge the page."""
    page = shown.browser.page(**PHONE)
    shown.log_in(page)
    for path in PATHS:
        _open(shown, page, path)
        assert page.run(SMALL) == [], path
    _open(shown, page, "/host/pc-2")
    page.click("button", "Snooze")
    page.until("document.activeElement?.innerText === 'No, leave it'", "the question")
    page.until(GROWN, "the question in its full size")
    assert page.run(SMALL) == []


# Text, and what stands in an empty field, that differs from its ground by less than WCAG's AA.
FAINT = """(() => {
  const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (text) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = text;
    brush.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (a, b) => [0, 1, 2].map((at) => a[at] * a[3] + b[at] * (1 - a[3])).concat(1);
  const light = (colour) => {
    const part = (of) => (of <= 0.04045 ? of / 12.92 : ((of + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.map((value) => part(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    const above = [];
    for (let one = node; one; one = one.parentElement)
      above.push(parse(getComputedStyle(one).backgroundColor));
    return above.reverse().reduce((below, one) => over(one, below), [255, 255, 255, 1]);
  };
  const found = new Set();
  const judge = (node, style, text) => {
    const below = ground(node);
    const ink = parse(style.color);
    ink[3] *= Number(style.opacity);
    const both = [light(over(ink, below)), light(below)].sort((a, b) => b - a);
    const ratio = (both[0] + 0.05) / (both[1] + 0.05);
    if (ratio < 4.5) found.add(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  };
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const node = words.currentNode.parentElement;
    const text = words.currentNode.textContent.trim();
    const seen = node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (text && seen && !node.closest("svg, option, script, style, [aria-hidden=true]"))
      judge(node, getComputedStyle(node), text);
  }
  for (const node of document.querySelectorAll("[placeholder]"))
    judge(node, getComputedStyle(node, "::placeholder"), node.placeholder);
  return [...found];
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(shown: Shown, *, dark: bool) -> None:
    """By WCAG 2's AA, as it is computed on each page."""
    page = shown.browser.page(dark=dark)
    for path in PATHS:
        _open(shown, page, path)
        assert page.run(FAINT) == [], path


def test_why_a_job_waits_comes_first_and_is_whole_on_a_phone(shown: Shown) -> None:
    """However long the hosts' names are."""
    page = shown.browser.page(**PHONE)
    _open(shown, page, "big-one")
    page.until_text(LONG_HOST, "table")
    headings = page.run(
        "[...document.querySelectorAll('h2')].filter(one => one.checkVisibility())"
        ".map(one => one.innerText)"
    )
    assert headings[:2] == ["Why it waits", "About"]
    cells = "[...document.querySelectorAll('table td:last-child')]"
    assert "needs CUDA" in page.run(f"{cells}.map(one => one.innerText).join()")
    beyond = f"{cells}.filter(one => one.getBoundingClientRect().right > {PHONE['width']})"
    assert page.run(f"{beyond}.map(one => one.innerText)") == []


def test_the_history_on_a_phone_has_room_for_its_reasons(shown: Shown) -> None:
    """In the whole width, and by the clock."""
    page = shown.browser.page(**PHONE)
    _open(shown, page, "running")
    page.until_text("assigned", "[aria-label=History] table")
    page.until(
        "[...document.querySelectorAll('[aria-label=History] td:last-child')]"
        ".find(one => one.innerText.includes('slot'))?.clientWidth > 250",
        "room for the reason",
    )
    times = page.run(
        "[...document.querySelectorAll('[aria-label=History] time')].map(one => one.innerText)"
    )
    assert times
    assert all(":" in text for text in times), times


def test_a_phone_tells_how_far_what_runs_is(shown: Shown) -> None:
    """Where there is no room for a column of its own; elsewhere it is not said twice."""
    page = shown.browser.page(**PHONE)
    _open(shown, page, "/jobs?state=running")
    states = "[...document.querySelectorAll('.ag-row .state')].map(one => one.innerText)"
    page.until(f"{states}.some(one => /running\\s*\\d+ %/.test(one))", "how far")
    page.resize(1280, 800)
    page.until(f"{states}.length && {states}.every(one => one === 'running')", "the state alone")


def test_tab_leaves_a_table_that_the_arrow_keys_lead_through(shown: Shown) -> None:
    """And Enter follows what a cell names."""
    page = shown.browser.page()
    _open(shown, page, "/")
    page.until_text("pc-10", ".ag-cell")
    inside = "document.activeElement.closest('section')?.getAttribute('aria-labelledby')"
    page.run("[...document.querySelectorAll('.tile')].at(-1).focus(); 1")
    page.key("Tab", 9)
    assert page.run(inside) == "running-title"
    page.key("Tab", 9)
    assert page.run(inside) == "hosts-title"
    page.key("ArrowDown", 40)
    page.key("ArrowDown", 40)
    page.until("document.activeElement.innerText === 'pc-2'", "a cell")
    page.key("Tab", 9)
    assert page.run(inside) is None
    page.run("[...document.querySelectorAll('.tile')].at(-1).focus(); 1")
    for _ in range(2):
        page.key("Tab", 9)
    for _ in range(2):
        page.key("ArrowDown", 40)
    page.key("Enter", 13)
    page.until("location.pathname === '/host/pc-2'", "its page")


def test_hosts_stand_in_the_order_in_which_people_count(shown: Shown) -> None:
    """`pc-2` before `pc-10`, with no click."""
    page = shown.page()
    page.until_text(f"{len(HOSTS)} of {len(HOSTS)} online")
    names = (
        "[...document.querySelectorAll('[aria-labelledby=hosts-title] .ag-row [col-id=id-host]')]"
        ".map(one => one.innerText)"
    )
    page.until(f"{names}.length === {len(HOSTS)}")
    assert page.run(names) == [LONG_HOST, "pc-2", "pc-10"]


def test_a_chart_with_nothing_to_draw_says_so(shown: Shown) -> None:
    """And no longer, once it has something."""
    page = shown.page("/curves")
    said = "getComputedStyle(document.querySelector('.chart'), '::after').content"
    page.until("Number(document.querySelector('[data-series]')?.dataset.series) > 1")
    assert page.run(said) == "none"
    page.run("document.querySelector('#curve-text').focus(); 1")
    page.type("no such job")
    page.until(f"{said}.includes('no job fits')", "that nothing fits")


def test_no_line_of_a_chart_is_told_by_its_colour_alone(shown: Shown) -> None:
    """Who sees no colours tells training from validation by the dashes."""
    page = shown.browser.page()
    _open(shown, page, "running")
    page.until("document.querySelector('[data-series=\"2\"]')", "both losses")
    dashes = (
        "[...document.querySelectorAll('.chart path[fill=none]')]"
        ".filter(one => one.getAttribute('stroke')?.includes('series'))"
        ".map(one => one.getAttribute('stroke-dasharray') ?? '')"
    )
    page.until(f"new Set({dashes}).size > 1", "dashes")
