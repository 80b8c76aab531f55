"""What the documents say of the project is so."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from agent.core.state import NEXT_PHASES, Phase
from coordinator.jobs.states import TRANSITIONS, Event
from coordinator.manifest.manifest_keys import Defaults, HostTable, JobTable, Table
from tests.harness.traits import TRAITS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_into_a_page_leads_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8")):
        other = page.parent / target if target else page
        if other.suffix == ".md":
            assert anchor in _anchors(other.read_text("utf-8")), f"{target}#{anchor}"


def _anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings: those of one name are numbered."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    times: Counter[str] = Counter()
    for title in re.findall(r"^#{1,6} +(.+?) *$", prose, re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(f"{anchor}-{times[anchor]}" if times[anchor] else anchor)
        times[anchor] += 1
    return found


@pytest.mark.parametrize("model", [Defaults, HostTable, JobTable])
def test_every_key_of_the_manifest_is_documented(model: type[Table]) -> None:
    text = (ROOT / "docs/reference/manifest.md").read_text("utf-8")
    for key in model.model_fields:
        assert f"`{key}`" in text, key


def test_every_transition_is_in_the_architecture() -> None:
    """architecture.md has a row for each event that moves a job, with where it leads."""
    text = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for event, (sources, target) in TRANSITIONS.items():
        if target is None or event is Event.ADDED:
            continue
        row = next((row for row in rows if event.value in row.split("|")[1]), None)
        assert row is not None, event
        cells = [cell.strip() for cell in row.split("|")[1:-1]]
        assert cells[2] == target.value
        assert cells[1] == "all but pending" or {*cells[1].split(", ")} == {*sources}


def test_the_phases_of_an_attempt_are_drawn_as_they_are() -> None:
    """The diagram in architecture.md is the agent's table; each phase has a row."""
    text = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
    arrows = [
        f"    {one} --> {to}".replace("giving back", "giving_back")
        for one, after in NEXT_PHASES.items()
        for to in Phase
        if to in after
    ]
    diagram = "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"])
    assert diagram in text, diagram
    assert all(f"\n| {phase} | " in text for phase in Phase)


def test_what_brokers_do_is_told_as_it_was_measured() -> None:
    """docs/reference/brokers.md has a row for each thing that the conformance tests try."""
    text = (ROOT / "docs/reference/brokers.md").read_text("utf-8")
    for what, cells in TRAITS.items():
        assert f"| {what} | {' | '.join(cells)} |\n" in text, what


def test_no_registry_and_no_path_of_a_machine_is_named() -> None:
    hosts = re.compile(r"files\.python" r"hosted\.org|py" r"pi\.org/simple|deb\.deb" r"ian\.org")
    for path in ROOT.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        if path.suffix in {".py", ".md", ".toml", ".txt", ".yaml", ".example"} and not hidden:
            assert not hosts.search(path.read_text("utf-8")), path


def test_every_test_of_an_attack_is_there() -> None:
    """security.md names the tests that try each attack; a test that is gone tries nothing."""
    text = (ROOT / "docs/explanation/security.md").read_text("utf-8")
    rows = [line for line in text.split("## Attacks")[1].splitlines() if line.startswith("| ")][2:]
    written = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def (test_\w+)", written, re.MULTILINE))
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert not {*named} - there, row
