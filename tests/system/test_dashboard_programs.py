"""Programs on the web page: which there are, who lets one in, its parameters, its jobs."""

from __future__ import annotations

from pathlib import Path

from broker.protocol import messages as m
from tests.harness.shown import WITH_BROWSER, Shown
from tests.harness.verbs import verb

pytestmark = WITH_BROWSER
FLEET = {"hosts": 3, "jobs": 2}
NOWHERE = {"allowed_hosts": ["lab-ws-1"]}  # whose owner lets no programs in
TITLES = "[...document.querySelectorAll('[col-id=title] a')].map(one => one.textContent)"


def test_a_program_has_its_hosts_its_parameters_and_its_jobs(shown: Shown) -> None:
    page = shown.page("/programs")
    page.until_text("fleet push", ".empty")
    pushed = shown.pushes("vision")
    title = f"vision@{pushed.digest[:12]}"
    page.until_text(title, "[col-id=title] a")
    shown.fleet.agent("open", more="[programs]\nunsigned = true\n")
    page.until_text("open", "[col-id=hosts]")
    page.click("[col-id=title] a", title)
    page.until_text(title, "h1")
    page.until("document.title.startsWith('vision@')")
    page.until_text("its owner lets no programs in", "[aria-label=Hosts] td")
    first = "document.querySelector('section[aria-label=Hosts] tbody tr')?.innerText"
    page.until(f"/^open\\s+yes/.test({first})", "the host that lets it in to come first")
    page.until_text("a number, at least 0.0 and at most 1.0: the step size", "td")
    page.until_text("shapes in pictures", "dd")
    page.until_text("weights", "dd")
    page.until_text("it has had no job yet", ".empty")
    page.open(f"{shown.url}/program/vision@{pushed.digest[:4]}")
    page.until(f"location.pathname === '/program/{pushed.digest}'")
    job = {"name": "mine", "program": pushed.title, "parameters": {"lr": 0.1}}
    shown.fleet.ask(m.AskRun, job=job)
    page.click("[col-id=name] a", "mine")
    page.click("dd a", title)
    page.until(f"location.pathname === '/program/{pushed.digest}'")
    page.until_text("mine", "[col-id=name] a")
    assert page.complaints == []


def test_a_program_that_is_gone_still_has_its_jobs(shown: Shown) -> None:
    pushed = shown.pushes("gone")
    job = {"name": "orphan", "program": pushed.title, "parameters": {"lr": 0.1}} | NOWHERE
    shown.fleet.ask(m.AskRun, job=job)
    page = shown.page("/programs")
    page.until_text("gone@", "[col-id=title] a")
    shown.fleet.cancel("orphan")
    shown.fleet.ask(m.AskRemove, kind="program", name=pushed.title)
    page.until(f"!{TITLES}.some(one => one.startsWith('gone@'))", "it to leave the table")
    page.open(f"{shown.url}/program/{pushed.digest}")
    page.until_text(f"gone@{pushed.digest[:12]}", "h1")
    page.until_text("does not have this program", ".warn")
    page.until_text("orphan", "[col-id=name] a")
    page.open(f"{shown.url}/program/vison")
    page.until_text("No such program", "h1")


def test_datasets_are_a_table_of_their_own(shown: Shown, tmp_path: Path) -> None:
    page = shown.page("/programs")
    page.until_text("fleet data push", ".empty")
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(name, "utf-8")
    done = verb("data", "push", "digits", str(tmp_path), environment=shown.fleet.environment)
    row = "section[aria-label=Datasets] .ag-row"
    page.until_text(f"digits@{done.stdout.partition('@')[2][:12]}", f"{row} [col-id=title]")
    page.until_text("2", f"{row} [col-id=files]")
    page.until_text("14 B", f"{row} [col-id=size]")
    page.until_text("none", f"{row} [col-id=hosts]")


def test_a_dataset_has_its_hosts_and_its_jobs(shown: Shown, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("one", "utf-8")
    done = verb("data", "push", "letters", str(tmp_path), environment=shown.fleet.environment)
    title = done.stdout.split()[-1]
    digest = title.partition("@")[2]
    reads = {"model": "gbt", "mode": "oracle", "data": {"prepared": title}} | NOWHERE
    shown.fleet.ask(m.AskRun, job={"name": "reader", **reads})
    page = shown.page(f"/dataset/letters@{digest[:4]}")
    page.until(f"location.pathname === '/dataset/{digest}'")
    page.until_text(f"letters@{digest[:12]}", "h1")
    page.until_text("3 B", "dd")
    page.until_text("no host yet", "[aria-label='Held by'] .note")
    page.click("[col-id=name] a", "reader")
    page.click("dd a", f"letters@{digest[:12]}")
    page.until(f"location.pathname === '/dataset/{digest}'")
    shown.fleet.cancel("reader")
    shown.fleet.ask(m.AskRemove, kind="dataset", name=title)
    page.open(f"{shown.url}/dataset/{digest}")
    page.until_text("does not have this dataset", ".warn")
    page.until_text("reader", "[col-id=name] a")
    assert page.complaints == []
    page.open(f"{shown.url}/dataset/leters")
    page.until_text("No such dataset", "h1")
