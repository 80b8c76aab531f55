"""The web page as eyes, thumbs and keys meet it: on a phone, light and dark, without a mouse."""

from __future__ import annotations

import pytest

from tests.harness.browser import Page
from tests.harness.shown import WITH_BROWSER, Shown

pytestmark = WITH_BROWSER
LONG_HOST = "a-workstation-with-a-long-name-on-the-attics-2nd-floor"
HOSTS = ("pc-10", "pc-2", LONG_HOST)
FLEET = {"hosts": 3, "jobs": 12, "names": HOSTS}
PHONE = {"width": 360, "height": 780}
PATHS = (
    "/", "/jobs", "/curves", "/timeline", "/login", "/nowhere", "/host/pc-2", "running", "big-one",
    "/programs", "program",
)  # fmt: skip
DRAWN = (
    "document.querySelector('[data-ready], [data-series], [data-bars], .log, .login, h1 + .note')"
)
TOLD = "!document.body.innerText.includes('asking the coordinator')"


def _open(shown: Shown, page: Page, path: str) -> None:
    """Go to a page, or to that of a job or program; wait until it is whole."""
    if path == "running":
        path = f"/job/{shown.job('running')['job_id']}"
    elif path == "program":
        path = f"/program/{shown.pushes('seen').digest}"
    elif not path.startswith("/"):
        rows = shown.fleet.client.list_jobs(["pending"])
        path = f"/job/{next(row for row in rows if row['name'] == path)['job_id']}"
    page.open(shown.url + path)
    page.until(DRAWN, f"{path} to be drawn")
    page.until(TOLD, f"{path} to be told")


# What is pressed and is smaller than a thumb, in CSS pixels; what makes a phone enlarge the page.
SMALL = """(() => {
  const found = [];
  for (const node of document.querySelectorAll("a, button, input, select, .q-radio, .q-checkbox")) {
    if (!node.checkVisibility() || node.closest(".skip, [aria-hidden=true]")) continue;
    const name = node.outerHTML.slice(0, 90);
    const box = node.getBoundingClientRect();
    if (box.width < 40 || box.height < 40) found.push(`${name}: ${box.width}x${box.height}`);
    const letters = getComputedStyle(node).fontSize;
    if (node.matches("select, [type=search], [type=password]") && parseFloat(letters) < 16)
      found.push(`${name}: ${letters}`);
  }
  return found;
})()"""


def test_a_page_fits_a_phone_and_thumbs(shown: Shown) -> None:
    page = shown.browser.page(**PHONE)
    shown.log_in(page)
    for path in PATHS:
        _open(shown, page, path)
        assert page.run(SMALL) == [], path
        page.until("document.documentElement.scrollWidth <= window.innerWidth", f"{path} to fit")
    _open(shown, page, "/host/pc-2")
    shown.ask(page, "Snooze")
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
  // What is drawn below a word of a chart, the foremost first.
  const drawn = (node) => {
    const box = node.getBoundingClientRect();
    const found = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return found.filter((one) => one.matches("svg path, svg rect")).map((one) => {
      const { fill, fillOpacity, opacity } = getComputedStyle(one);
      const colour = parse(fill);
      return [...colour.slice(0, 3), colour[3] * fillOpacity * opacity];
    });
  };
  const ground = (node) => {
    const above = node.closest("svg") ? drawn(node) : [];
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
    if (text && seen && !node.closest("option, script, style, [aria-hidden=true]")) {
      const { color, fill, opacity } = getComputedStyle(node);
      judge(node, { color: node.closest("svg") ? fill : color, opacity }, text);
    }
  }
  for (const node of document.querySelectorAll("[placeholder]"))
    judge(node, getComputedStyle(node, "::placeholder"), node.placeholder);
  return [...found];
})()"""


# Attempts of each end, such as hosts have of the last two minutes.
FATES = """(() => {
  const ends = ["completed", "failed", "cancelled", "lost", "released"];
  const runs = ends.map((end, at) => {
    const started = Date.now() - 20000 * (ends.length + 1 - at);
    const finished = started + 19000 - 2000 * at;
    const id = String(at).repeat(64);
    return { id, name: `it-${end}`, attempt: 1, host: "pc-gone", started, finished, state: end };
  });
  const chart = document.querySelector("[data-bars]").id.slice(1);
  fleet.feedTimeline(Number(chart), { past: { runs, afresh: false, most: 3000 } });
})()"""


def _open_timeline(shown: Shown, page: Page) -> None:
    """Go to the timeline, and wait until it has attempts of each end, and one that runs."""
    page.open(f"{shown.url}/timeline")
    page.until("Number(document.querySelector('[data-bars]')?.dataset.bars) > 2", "the bars")
    page.run(FATES)
    for name in ("it-released", "gbt-"):
        page.until(
            "[...document.querySelectorAll('.chart svg text')]"
            f".some(one => one.textContent.startsWith('{name}'))",
            f"a bar with {name} on it",
        )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(shown: Shown, *, dark: bool) -> None:
    """By WCAG 2's AA, as it is computed on each page."""
    page = shown.browser.page(dark=dark)
    for path in PATHS:
        _open(shown, page, path)
        assert page.run(FAINT) == [], path
    _open_timeline(shown, page)
    assert page.run(FAINT) == [], "the names on the bars, whatever became of the attempts"


def test_why_a_job_waits_comes_first_and_is_whole_on_a_phone(shown: Shown) -> None:
    page = shown.browser.page(**PHONE)
    _open(shown, page, "big-one")
    page.until_text(LONG_HOST, "table")
    page.until_text("if min_vram_gib were", "ul li")
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


def test_a_list_that_goes_on_has_a_shadow_where_it_does(shown: Shown) -> None:
    page = shown.browser.page(**PHONE)
    _open(shown, page, "running")
    page.until_text("assigned", "[aria-label=History] table")

    def shadows(height: str, to: int) -> tuple[bool, bool]:
        x, top, bottom = page.run(
            "(() => { const one = document.querySelector('.scroll[aria-label=History]');"
            f"one.style.maxHeight = '{height}'; one.scrollTop = {to};"
            "one.scrollIntoView({ block: 'center' }); const box = one.getBoundingClientRect();"
            "return [box.right - 2, box.y + scrollY, box.bottom + scrollY]; })()"
        )
        ground = page.colour(x, top - 3)
        return page.colour(x, top + 1) != ground, page.colour(x, bottom - 2) != ground

    assert shadows("80px", 0) == (False, True)
    assert shadows("80px", 22) == (True, True)
    assert shadows("80px", 10_000) == (True, False)
    assert shadows("none", 0) == (False, False)


def test_a_phone_tells_how_far_what_runs_is(shown: Shown) -> None:
    """Where there is no room for a column of its own; elsewhere it is not said twice."""
    page = shown.browser.page(**PHONE)
    _open(shown, page, "/jobs?state=running")
    states = "[...document.querySelectorAll('.ag-row .state')].map(one => one.innerText)"
    page.until(f"{states}.some(one => /running\\s*\\d+ %/.test(one))", "how far")
    page.resize(1280, 800)
    page.until(f"{states}.length && {states}.every(one => one === 'running')", "the state alone")


def test_tab_leaves_a_table_that_the_arrow_keys_lead_through(shown: Shown) -> None:
    page = shown.browser.page()
    _open(shown, page, "/")
    page.until_text("pc-10", ".ag-cell")
    page.until_text("no host can run", ".warn")
    inside = "document.activeElement.closest('section')?.getAttribute('aria-label')"
    page.run("document.querySelector('.warn a').focus(); 1")
    page.key("Tab", 9)
    assert page.run(inside) == "Running now"
    page.key("Tab", 9)
    assert page.run(inside) == "Hosts"
    page.key("ArrowDown", 40)
    page.key("ArrowDown", 40)
    page.until("document.activeElement.innerText === 'pc-2'", "a cell")
    page.key("Tab", 9)
    assert page.run(inside) is None
    page.run("document.querySelector('.warn a').focus(); 1")
    for _ in range(2):
        page.key("Tab", 9)
    for _ in range(2):
        page.key("ArrowDown", 40)
    page.key("Enter", 13)
    page.until("location.pathname === '/host/pc-2'", "its page")


def test_hosts_stand_in_the_order_in_which_people_count(shown: Shown) -> None:
    page = shown.page()
    page.until_text(f"{len(HOSTS)} of {len(HOSTS)} online")
    names = (
        "[...document.querySelectorAll('section[aria-label=Hosts] .ag-row [col-id=id]')]"
        ".map(one => one.innerText)"
    )
    page.until(f"{names}.length === {len(HOSTS)}")
    assert page.run(names) == [LONG_HOST, "pc-2", "pc-10"]


def test_where_there_is_nothing_to_show_that_is_said(shown: Shown) -> None:
    page = shown.page("/jobs?text=nothing-is-called-this")
    page.until_text("no job to show", ".empty")
    page.run("fleet.filter({text: ''})")
    page.until_text("gbt-", ".ag-cell")
    page.until("!document.querySelector('.empty').checkVisibility()")
    page.open(f"{shown.url}/curves")
    said = "getComputedStyle(document.querySelector('.chart'), '::after').content"
    page.until("Number(document.querySelector('[data-series]')?.dataset.series) > 1")
    assert page.run(said) == "none"
    page.run("document.querySelector('#curve-text').focus(); 1")
    page.type("no such job")
    page.until(f"{said}.includes('no job fits')", "that nothing fits")


def test_no_line_of_a_chart_is_told_by_its_colour_alone(shown: Shown) -> None:
    page = shown.browser.page()
    _open(shown, page, "running")
    page.until("document.querySelector('[data-series=\"2\"]')", "both losses")
    dashes = (
        "[...document.querySelectorAll('.chart path[fill=none]')]"
        ".filter(one => one.getAttribute('stroke')?.includes('series'))"
        ".map(one => one.getAttribute('stroke-dasharray') ?? '')"
    )
    page.until(f"new Set({dashes}).size > 1", "dashes")


def test_the_timelines_attempts_are_a_table_for_screen_readers_and_keys(shown: Shown) -> None:
    page = shown.browser.page()
    _open_timeline(shown, page)
    page.until_text("it-lost", ".ag-cell")
    nodes = page.accessible()
    assert [node["name"] for node in nodes if node["role"] in {"grid", "treegrid"}] == ["Attempts"]
    titles = [node["name"] for node in nodes if node["role"] == "columnheader"]
    assert titles == ["Job", "Try", "Host", "State", "Began", "Took"]
    cells = [node["name"] for node in nodes if node["role"] == "gridcell"]
    row = cells[cells.index("it-lost") :][:6]
    assert (row[:4], row[5]) == (["it-lost", "1", "pc-gone", "lost"], "13 s")
    page.click(".ag-header-cell-text", "Took")
    page.until(
        "document.querySelector('.ag-row[row-index=\"0\"] a')?.innerText === 'it-released'",
        "the shortest first",
    )
    page.run("document.querySelector('.filters select').focus(); 1")
    page.key("Tab", 9)
    inside = "document.activeElement.closest('section')?.getAttribute('aria-label')"
    assert page.run(inside) == "Attempts", "it is reached by keyboard"
    page.key("ArrowDown", 40)
    page.until("document.activeElement.innerText === 'it-released'", "the first attempt")
    page.key("Enter", 13)
    page.until("location.pathname.startsWith('/job/')", "its page")


# An attempt of more than an hour ago.
OLD = """(() => {
  const now = Date.now();
  const one = { id: "e".repeat(64), name: "of-old", attempt: 1, host: "pc-gone" };
  Object.assign(one, { started: now - 9e6, finished: now - 8e6, state: "failed" });
  const chart = document.querySelector("[data-bars]").id.slice(1);
  fleet.feedTimeline(Number(chart), { past: { runs: [one], afresh: false, most: 3000 } });
})()"""


def test_a_table_of_the_timeline_follows_the_time_that_is_chosen(shown: Shown) -> None:
    page = shown.browser.page()
    _open_timeline(shown, page)
    page.run(OLD)
    page.until_text("of-old", ".ag-cell")
    page.run("const one = document.querySelector('.filters select'); one.value = '1';"
             "one.dispatchEvent(new Event('change'))")  # fmt: skip
    listed = "[...document.querySelectorAll('.ag-cell')].some(one => one.innerText === '{}')"
    page.until(f"{listed.format('it-lost')} && !{listed.format('of-old')}", "the last hour alone")


def test_that_no_host_can_run_a_job_is_said_whole(shown: Shown) -> None:
    """Beside its state, in words, however narrow the table is."""
    seen = (
        "[...document.querySelectorAll('[data-ready] .hopeless')].map(one => {"
        "const words = document.createRange(); words.selectNodeContents(one);"
        "const { left, right, top, height } = words.getBoundingClientRect();"
        "const isAt = x => document.elementsFromPoint(x, top + height / 2).includes(one);"
        "return isAt(left + 2) && isAt(right - 2) })"
    )
    for width in (360, 390, 600, 1280):
        page = shown.browser.page(width, 800)
        _open(shown, page, "/jobs?text=big-one")
        page.until_text("no host can run it", ".ag-row")
        page.until("!document.querySelector('.ag-column-moving')")
        assert page.run(seen) == [True], f"{width} pixels"


def test_a_long_name_has_two_lines_on_a_phone(shown: Shown) -> None:
    page = shown.browser.page(**PHONE)
    page.open(shown.url)
    page.until_text("a-workstation", ".ag-cell")
    lines = (
        "(() => { const one = [...document.querySelectorAll('.ag-cell a')]"
        f".find(one => one.textContent === {LONG_HOST!r}), words = document.createRange();"
        "words.selectNodeContents(one); const { bottom } = one.getBoundingClientRect();"
        "const tops = [...words.getClientRects()].filter(line => line.bottom <= bottom + 1)"
        ".map(line => Math.round(line.top)); return new Set(tops).size })()"
    )
    page.until(f"{lines} === 2", "two lines")
    page.resize(1280, 800)
    page.until(f"{lines} === 1", "one line")
