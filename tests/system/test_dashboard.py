"""The web page in a headless Chromium, on a real broker, coordinator and (simulated) hosts.

The tests click, and look at the ledger afterwards.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from broker.protocol import messages as m
from broker.system.machine import new_id
from tests.harness.shown import WITH_BROWSER, Shown

pytestmark = WITH_BROWSER
EVIL = "<img src=x onerror=\"window.hurt='yes'\">`${window.hurt='yes'}`</script>"
PAGES = ("/", "/jobs", "/curves", "/timeline", "/programs")
WORKERS, JOBS = 6, 40
FLEET = {"hosts": WORKERS, "jobs": JOBS}


def test_the_overview_shows_the_fleet_and_follows_it(shown: Shown) -> None:
    """Without a word to anybody else than the page's own host."""
    page = shown.page()
    page.until_text("gaming-pc-1")
    page.until_text(f"{WORKERS} of {WORKERS} online")
    page.until("document.querySelectorAll('.bar .fill').length > 4")
    running = shown.job("running")
    before = page.text(".tile[href='/jobs?state=cancelled'] .number")
    shown.fleet.cancel(running["job_id"])
    page.until(
        "document.querySelector(\".tile[href='/jobs?state=cancelled'] .number\").innerText === "
        f"'{int(before) + 1}'",
        "the number of cancelled jobs",
    )
    for path in PAGES:
        page.open(shown.url + path)
        page.until("document.querySelector('[data-ready], [data-series], [data-bars]')")
    assert page.elsewhere == []
    assert page.complaints == []
    cell = "{job_id: '', jobs: 0, ending: true, online: true}"
    assert page.run(f"fleet.cells.doing({{data: {cell}}}).textContent") == "ending"
    data = "{state: 'completed', mark: 'below chance', marked: 'below chance: so'}"
    cell = f"{{value: 'completed', data: {data}}}"
    for kind in ("state", "share"):
        said = page.run(f"(node => [node.textContent, node.title])(fleet.cells.{kind}({cell}))")
        assert said[0].endswith("below chance")
        assert said[1] == "below chance: so"


def test_every_page_has_the_plans_name_and_follows_it(shown: Shown) -> None:
    """It is in the header; a reload that changes nothing else is told as well."""
    page = shown.page("/jobs")
    page.until_text("forty trees", "header")
    manifest = shown.fleet.manifest
    before = manifest.read_text("utf-8")
    try:
        manifest.write_text(before.replace("forty trees", "<b>forty</b> trees"), "utf-8")
        shown.fleet.reload()
        page.until_text("<b>forty</b> trees", "header")
    finally:
        manifest.write_text(before, "utf-8")
        shown.fleet.reload()
    page.until_text("forty trees", "header")


def test_a_host_has_its_description_in_the_manifest(shown: Shown) -> None:
    page = shown.page("/host/lab-ws-1")
    page.until_text("beside the window", "[aria-label='What it is']")
    page.until_text("says nothing of it but what it is.", "[aria-label='What it may do']")


def test_words_from_the_wire_are_shown_as_words(shown: Shown, client: Callable[..., Any]) -> None:
    held, bad_id = shown.job("running"), "e" * 64
    made = dict.fromkeys(("name", "model", "mode", "error", "created_at"), EVIL)
    metrics = {":evil": 1.0, "auroc": 0.5}
    with shown.row(client, **made, host="../" + EVIL, state="failed", metrics=metrics) as somebody:
        page = shown.page("/jobs?text=onerror")
        page.until_text(EVIL, ".ag-cell")
        said = f"{held['attempt']}.99999 {EVIL}"
        topic = somebody.topics.log(held["host"], held["job_id"])
        somebody.client.publish(topic, said.encode())
        for path in ("/", "/timeline", f"/job/{bad_id}", f"/job/{held['job_id']}"):
            page.open(shown.url + path)
            page.until("document.querySelector('[data-ready], [data-bars], .log')")
        page.until_text(EVIL, ".log")
        page.open(f"{shown.url}/job/{bad_id}")
        page.until_text(EVIL, "h1")
        assert page.run("window.hurt ?? 'no'") == "no"
        assert page.run("document.querySelectorAll('img[src=x]').length") == 0


def test_a_metric_with_its_interval_is_whole_and_an_orphan_is_told_from_its_namesake(
    shown: Shown, client: Callable[..., Any]
) -> None:
    made = {"name": "gbt-00", "in_plan": False,
            "metrics": {"auroc": 0.811503, "auroc_ci": [0.9012, 0.9712]}}  # fmt: skip
    with shown.row(client, **made):
        page = shown.page("/jobs?text=gbt-00", width=1200)
        page.until_text("0.901 to 0.971", ".ag-cell[col-id=interval]")
        page.until_text("0.812", ".ag-cell[col-id=value]")  # not rounded twice
        cut = (
            "(cell => { const inside = document.createRange(); inside.selectNodeContents(cell); "
            "return inside.getBoundingClientRect().right > cell.getBoundingClientRect().right; })"
        )
        cells = "[...document.querySelectorAll('.ag-cell[col-id=interval]')]"
        for width in (1200, 1250, 1300):
            page.resize(width, 800)
            page.until(f"window.innerWidth === {width} && !{cells}.some({cut})")
        names = "[...document.querySelectorAll('.ag-row .ag-cell[col-id=name]')]"
        page.until(f"{names}.length === 2")
        said = page.run(f"{names}.map(one => one.innerText).join('; ')")
        assert sorted(said.split("; ")) == ["gbt-00", "gbt-00 orphaned"]


def test_what_runs_is_the_first_row_of_the_jobs_and_what_is_over_is_not(shown: Shown) -> None:
    """By the ledger's order a job that is cancelled stands among those that wait."""
    over = shown.job("running")
    shown.fleet.cancel(over["job_id"])
    page = shown.page("/jobs")
    cell = 'document.querySelector(\'.ag-row[row-index="0"] [col-id="{}"]\')?.innerText'
    page.until(f"{cell.format('state')} === 'running'", "the first row to be of what runs")
    over = shown.job("running")
    page.until_text(over["name"])
    shown.fleet.cancel(over["job_id"])
    page.until(f"{cell.format('name')} !== '{over['name']}'", "the row to go down")
    assert page.complaints == []


def test_jobs_are_filtered_searched_and_sorted(shown: Shown) -> None:
    """What is chosen stands in the address, so that it can be sent to somebody."""
    page = shown.page("/jobs")
    page.until_text(f"{JOBS + 1} jobs", "#shown-jobs")
    page.run("document.querySelector('input[type=search]').focus(); 1")
    page.type("big")
    page.until_text(f"1 of {JOBS + 1} jobs", "#shown-jobs")
    assert page.run("location.search") == "?text=big"
    page.open(f"{shown.url}/jobs?state=pending&model=gbt")
    page.until_text(f" of {JOBS + 1} jobs", "#shown-jobs")
    states = "[...document.querySelectorAll('.ag-row .state')].map(one => one.innerText)"
    page.until(f"{states}.length > 3 && {states}.every(one => one === 'pending')")
    page.open(f"{shown.url}/jobs")
    names = "[...document.querySelectorAll('.ag-row:not(.ag-opacity-zero) [col-id=name] a')]"
    page.until(f"{names}.length > 5")
    page.click(".ag-header-cell-text", "Job")
    page.click(".ag-header-cell-text", "Job")
    page.until(
        "document.querySelector('.ag-row[row-index=\"0\"] a')?.innerText === 'gbt-39'",
        "the last name first",
    )


def test_a_job_that_no_host_can_run_is_marked_as_long_as_it_waits(shown: Shown) -> None:
    page, other = shown.page(), shown.page()
    page.click(".warn a", "1 job that no host can run")
    page.until_text(f"1 of {JOBS + 1} jobs", "#shown-jobs")
    assert page.run("location.search") == "?state=unplaceable"
    page.until_text("no host can run it", ".ag-row .state")
    page.click(".ag-row a", "big-one")
    page.until_text("no host can run it", ".head")
    shown.fleet.cancel("big-one")
    page.until("!document.querySelector('.head').innerText.includes('no host')")
    other.until("!document.querySelector('.warn').checkVisibility()", "the note to go")
    shown.fleet.requeue("big-one")
    other.until_text("1 job that no host can run", ".warn")
    page.until_text("no host can run it", ".head")


def test_a_job_that_waits_for_drained_hosts_says_so_until_one_is_resumed(shown: Shown) -> None:
    hosts = [row["host"] for row in shown.fleet.client.list_workers()]
    for host in hosts:
        shown.fleet.client.ask(m.AskDrain(id=new_id(), host=host))
    try:
        page = shown.page("/jobs?state=pending&text=fleet+resume")
        words = "waits for `fleet resume` of attic-pi-1, attic-pi-2, "
        page.until_text("awaits resume", ".ag-row .state")
        assert page.run("document.querySelector('.ag-row .state').title").startswith(words)
        page.click(".ag-row a")
        page.until_text(words, ".head")
    finally:
        for host in hosts:
            shown.fleet.client.ask(m.AskResume(id=new_id(), host=host))
    page.until("!document.querySelector('.head').innerText.includes('waits for')")


@pytest.mark.parametrize("path", ["/job/{name}", "/jobs/{name}", "/job/{start}"])
def test_a_job_is_found_by_its_name_and_by_the_start_of_its_id(shown: Shown, path: str) -> None:
    job = next(row for row in shown.fleet.client.list_jobs() if row["name"] == "big-one")
    typed = shown.url + path.format(name="big-one", start=job["job_id"][:12])
    with urlopen(typed) as answer:  # noqa: S310 - ours
        assert (answer.status, answer.url) == (200, f"{shown.url}/job/{job['job_id']}")


def test_an_address_that_is_none_leads_back(shown: Shown) -> None:
    page = shown.page("/jbos")
    page.until_text("No such page", "h1")
    page.click("a", "The overview")
    page.until_text("gaming-pc-1")
    said = page.run("fetch('/jbos').then(answer => answer.status)")
    assert said == 404


PLACES = (
    "/{}", "/job/{}", "/jobs/{}", "/jobs?text={}&state={}", "/host/{}", "/timeline?{}",
    "/report/{}", "/artifact/{}", "/artifact/JOB/{}", "/fleet/{}", "/login?next={}",
    "/login?next=/{}", "/_nicegui/{}",
)  # fmt: skip
ODD = {
    "many-digits": "9" * 5000, "nul": "%00", "nul-within": "a%00b", "no-utf-8": "%ff%fe",
    "surrogate": "%ed%a0%80", "half-a-percent": "%", "long": "x" * 300, "longer": "x" * 5000,
    "above": "..%2f..%2f..%2fetc%2fpasswd", "a-line": "%0d%0aX-Y: z", "negative": "-1",
    "other-digits": "%d9%a3", "brackets": "%5b%5d[", "blank": "%20", "emoji": "%f0%9f%98%80",
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_no_address_is_an_error_of_ours(shown: Shown, odd: str) -> None:
    """Neither to whoever asks nor in what the process says."""
    job = shown.job("running")["job_id"]
    told, before = {}, len(shown.program.said())
    for place in PLACES:
        connection = http.client.HTTPConnection(urlsplit(shown.url).netloc, timeout=60)
        path = place.replace("JOB", job).replace("{}", odd)
        connection.request("GET", path.replace(" ", "%20"))
        told[place] = connection.getresponse().status
        connection.close()
    assert {place: code for place, code in told.items() if code >= 500} == {}
    assert "Traceback" not in shown.program.said()[before:]


def test_the_table_of_hosts_is_as_high_as_its_rows(shown: Shown) -> None:
    page = shown.page()
    page.until_text(f"{WORKERS} of {WORKERS} online")
    last = "[...document.querySelectorAll('section[aria-label=Hosts] .ag-row')].at(-1)"
    page.until(
        "(() => { const card = document.querySelector('section[aria-label=Hosts]');"
        f" const row = {last}; return row && card.getBoundingClientRect().bottom"
        " - Math.max(...[...card.querySelectorAll('.ag-row')].map("
        "one => one.getBoundingClientRect().bottom)) < 20; })()",
        "no empty room",
    )


def test_a_word_that_is_wider_than_a_phone_is_broken(
    shown: Shown, client: Callable[..., Any]
) -> None:
    key = "e" * 64
    with shown.row(client, name="wide-one", artifact_id="5a" * 32):
        page = shown.page(f"/job/{key}", width=360, height=740)
        page.until_text("did not tell more", ".warn")
        page.until_text(key, ".warn")
        assert page.run("[window.innerWidth, document.documentElement.scrollWidth]") == [360, 360]


@pytest.mark.parametrize("path", [*PAGES, "/login", "/host/gaming-pc-1", "/job"])
def test_a_screen_reader_finds_its_way(shown: Shown, path: str) -> None:
    if path == "/job":
        path = f"/job/{shown.job('running')['job_id']}"
    page = shown.page(path)
    page.until("document.querySelector('[data-ready], [data-series], [data-bars], .log, .login')")
    if path in {"/", "/jobs"}:
        page.until("document.querySelector('[role=columnheader]')")
    nodes = page.accessible()
    assert sum(node["role"] == "main" for node in nodes) == 1
    headings = [node for node in nodes if node["role"] == "heading" and node.get("level") == 1]
    assert len(headings) == 1
    assert headings[0]["name"]
    usable = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "grid", "table"}
    unnamed = [node for node in nodes if node["role"] in usable and not node["name"]]
    assert unnamed == []
    if path != "/login":
        page.key("Tab", 9)
        assert page.run("document.activeElement.innerText") == "Skip to the page"
    if path in {"/", "/jobs"}:
        titles = [node["name"] for node in nodes if node["role"] == "columnheader"]
        assert {"State", "Status"} & {*titles}
        assert any(node["role"] == "status" for node in nodes)


def test_colours_follow_the_system_and_a_switch(shown: Shown) -> None:
    page = shown.page(dark=True)
    page.until("document.body.classList.contains('body--dark')")
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    page.dark(on=False)
    page.until("!document.body.classList.contains('body--dark')")
    assert page.run("getComputedStyle(document.body).backgroundColor") != ground
    page.click("#theme")  # from the system's to light
    page.click("#theme")  # to dark
    page.until("document.body.classList.contains('body--dark')")
    page.open(f"{shown.url}/jobs")
    page.until("document.body.classList.contains('body--dark')")
