"""Tables and what is watched, in windows of every width."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from coordinator.cli.list_ import _draw as draw_jobs
from coordinator.cli.workers import _draw as draw_hosts
from coordinator.client.contact import Unreachable
from coordinator.ui import live
from coordinator.ui.columns import Column, Table, fit
from coordinator.ui.live import View, Window
from coordinator.ui.terminal import PIPE_WIDTH, Line, put
from coordinator.ui.words import by_row

JOB = {
    "job_id": "a" * 64, "name": "transformer_ssl-realistic-0027", "state": "running",
    "host": "gaming-pc-12", "metrics": {"auroc": 0.912}, "started_at": "2026-01-02T11:00:00Z",
    "finished_at": None, "attempt": 1, "priority": 10, "artifact_id": None, "error": None,
    "in_plan": True,
    "progress": {"phase": "train", "epoch": 24, "epochs": 60, "eta_s": 200.0},
    "held": {"phase": "running"}, "share": 0.4, "left_s": 200.0,
}  # fmt: skip
GPU = {
    "name": "NVIDIA GeForce RTX 4090", "vram_free_bytes": 20 << 30, "use_percent": 91.0,
    "power_w": 412.0,
}  # fmt: skip
HOST = {
    "host": "gaming-pc-12", "status": "online", "presence": "online", "condition": "online",
    "barred": [],
    "last_seen": "2026-01-02T11:00:00Z",
    "capability": {"physical_cores": 8, "gpus": [GPU], "agent_version": "0.1.0"},
    "heartbeat": {"cpu_percent": 85.0, "ram_available_bytes": 19 << 30, "gpus": [GPU]},
    "jobs": [{"name": JOB["name"], "job_id": "a", "phase": "running", "progress": 0.4}],
}  # fmt: skip


def _text(parts: Any, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    put(console, parts)
    out = console.file
    assert isinstance(out, io.StringIO)
    return out.getvalue()


def _titles(draw: Callable[[Any], Any], row: dict[str, Any], width: int) -> list[str]:
    text = _text(draw([row]), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text, "a column that does not fit is left out, not cut to a stump"
    return lines[0].split()


def test_jobs_stand_by_what_they_do_and_not_by_their_priority_alone() -> None:
    """As they come, next to be claimed first, a job of high priority that is over is the first."""
    came = [
        ("urgent", "cancelled", "2026-01-02T11:00:00.000Z"), ("next", "pending", None),
        ("done", "completed", "2026-01-02T12:00:00.000Z"), ("later", "pending", None),
        ("given", "claimed", None), ("at-work", "running", None),
        ("broken", "failed", "2026-01-02T11:30:00.000Z"),
    ]  # fmt: skip
    rows = [
        {"name": name, "state": state, "finished_at": at, "created_at": f"{place}",
         "priority": 9 if name == "urgent" else 0}
        for place, (name, state, at) in enumerate(came)
    ]  # fmt: skip
    assert [row["name"] for row in sorted(rows, key=by_row)] == [
        "at-work", "given", "next", "later", "done", "broken", "urgent"
    ]  # fmt: skip


def test_jobs_at_eighty_columns_and_at_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, state, host and progress are whole at 80; a wide window has everything."""
    monkeypatch.setenv("COLUMNS", "80")
    narrow = _titles(draw_jobs, JOB, 80)
    assert narrow[:5] == ["JOB", "STATE", "HOST", "DONE", "LEFT"]
    assert "ID" not in narrow
    monkeypatch.setenv("COLUMNS", "160")
    wide = _titles(draw_jobs, JOB, 160)
    assert {"AUROC", "TOOK", "TRY", "PRIO", "ENDED", "ARTIFACT", "ID"} <= set(wide)
    assert "40%" in _text(draw_jobs([JOB]), 160)
    assert "3 min" in _text(draw_jobs([JOB]), 160)


def test_hosts_at_eighty_columns_and_at_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a host does is whole at 80, with the model of its card; wide, all that it measures."""
    monkeypatch.setenv("COLUMNS", "80")
    assert _titles(draw_hosts, HOST, 80)[:4] == ["HOST", "STATUS", "JOBS", "GPU"]
    text = _text(draw_hosts([HOST]), 80)
    assert f"{JOB['name']} 40%" in text
    assert " RTX 4090 " in text
    monkeypatch.setenv("COLUMNS", "160")
    assert "412 W" in _text(draw_hosts([HOST]), 160)
    gone = {**HOST, "status": "offline", "presence": "cut-off", "condition": "cut-off"}
    told = _text(draw_hosts([gone]), 160)
    assert "last seen" in told
    assert not {"85%", "19.0 GiB", "20.0 GiB", "412 W"} & {*told.replace("  ", "\n").split("\n")}
    assert "takes no jobs" in _text(draw_hosts([{**HOST, "jobs": [], "barred": ["drained"]}]), 160)
    why = "drained by operator:ann at 2026; `fleet resume gaming-pc-12` lifts it"
    drained = _text(
        draw_hosts([{**HOST, "condition": "drained", "barred": [why]}]), 160
    ).splitlines()[2]
    assert drained.split()[:2] == ["gaming-pc-12", "drained"], "no footnote alone says it"


def test_what_a_host_is_described_as_is_shown_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its owner's words before the manifest's; no column where there are none, or at 80."""
    plain = {**HOST, "policy": {"description": ""}}
    told = {**HOST, "policy": {"description": "a desktop"}}
    owners = {**told, "capability": HOST["capability"] | {"description": "Ann's desk"}}  # type: ignore[operator]
    for row, said in ((told, "a desktop"), (owners, "Ann's desk")):
        monkeypatch.setenv("COLUMNS", "200")
        head, _, line = _text(draw_hosts([row]), 200).splitlines()
        assert (head.rstrip()[-11:], line.rstrip()[-len(said) :]) == ("DESCRIPTION", said)
        monkeypatch.setenv("COLUMNS", "80")
        assert said not in _text(draw_hosts([row]), 80)
        assert max(map(len, _text(draw_hosts([row]), 80).splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "200")
    assert "DESCRIPTION" not in _text(draw_hosts([plain]), 200)


def test_twins_are_told_what_fits_how_they_connect() -> None:
    """With certificates another --host would not help."""
    twins = {**HOST, "presence": "twins"}
    assert "--host" in _text(draw_hosts([twins]), 200)
    told = _text(draw_hosts([{**twins, "alone_in_s": 40}]), 200)
    assert "; clears in 40 s once one of them has gone\n" in told
    capability = {**HOST["capability"], "certificate_expires_at": "2126-01-01T00:00:00Z"}  # type: ignore[dict-item]
    assert "fleet enroll" in _text(draw_hosts([{**twins, "capability": capability}]), 200)


@pytest.mark.parametrize("ends", ["2026-01-01", "2026-01-01T00:00:00", "soon", ""])
def test_an_end_of_a_certificate_that_nobody_can_read_costs_no_host_its_line(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one host says must not keep anybody from seeing the others."""
    monkeypatch.setenv("COLUMNS", "80")
    odd = {**HOST, "capability": HOST["capability"] | {"certificate_expires_at": ends}}  # type: ignore[operator]
    assert HOST["host"] in _text(draw_hosts([odd]), 80)


def test_what_says_nothing_goes_first() -> None:
    """A column of dashes gives way before one of a higher rank that says something."""
    columns = (Column("NAME"), Column("EMPTY", rank=1), Column("FULL", rank=2))
    table = Table(columns, [("a" * 10, "-", "x" * 5)])
    assert _text([table], 20).split()[:2] == ["NAME", "FULL"]


def test_a_row_is_cut_and_aligned_by_what_is_seen_of_it() -> None:
    """Wide letters count twice; a cell of two lines is one line of the table."""
    columns = (Column("NAME", least=8), Column("STATE"), Column("N", rank=1, right=True))
    rows = [("漢字の名前の機械", Text("up", "green"), 1), ("two\nlines", "away", 333)]
    table = Table(columns, rows)
    for _ in range(2):  # what is watched is drawn again and again
        assert _text([table], 21).splitlines() == [
            "NAME       STATE    N",
            "─" * 21,
            "漢字の名…  up       1",
            "two lines  away   333",
        ]


@pytest.mark.parametrize("window", range(1, 120, 7))
def test_no_window_is_too_narrow(window: int) -> None:
    """Widths add up to what there is, as long as there is anything."""
    columns = (Column("A", least=5), Column("B"), Column("C", rank=1, least=4))
    widths = fit(columns, [], window)
    assert sum(widths.values()) + 2 * (len(widths) - 1) <= max(window, 8)


def test_a_line_is_whole_for_a_program_and_goes_on_indented_for_people() -> None:
    """So that grep finds it, and people can read it."""
    said = "pi: " + "needs CUDA; this host has none; " * 5
    assert _text([Line(said)], PIPE_WIDTH).splitlines() == [said]
    long = "x" * 2 * PIPE_WIDTH
    assert _text([long], PIPE_WIDTH).splitlines() == [long]
    lines = _text([Line(said)], 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("  ") for line in lines[1:])


def test_a_line_uses_all_of_the_window_and_breaks_no_command() -> None:
    """The first line has the whole width; what one may copy stands in one line."""
    said = "lab-ws-1: drained by operator:al just now; `fleet resume lab-ws-1` lifts it"
    assert _text([Line(said, indent=13)], 60).splitlines() == [
        "lab-ws-1: drained by operator:al just now;",
        "             `fleet resume lab-ws-1` lifts it",
    ]
    words = " ".join(["four"] * 16)  # 79 characters
    assert _text([Line(f"{words} more", indent=30)], 80).splitlines() == [words, f"{' ' * 30}more"]
    styled = Line(Text("one `two three` four", "red"), indent=2)
    assert _text([styled], 22).splitlines() == ["one `two three` four"]


def test_a_window_says_what_it_does_not_show() -> None:
    """As many lines as there is room for, and the number of the others."""
    out = io.StringIO()
    console = Console(file=out, width=60, height=10)
    console.print(Window("fleet list", "now", "", [str(number) for number in range(50)]))
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("fleet list")
    assert lines[-1].startswith("… 43 more lines")


class _Client:
    """As much of a client as watching needs: something changes when it is waited for."""

    def __init__(self, looks: list[Any]) -> None:
        self.looks = looks

    def messages(self, _wait_s: float) -> list[Any]:
        if not self.looks:
            raise KeyboardInterrupt
        return []

    def read(self) -> Any:
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`watched(looks, as_json=…)`: what is shown of a view that changes so, until Ctrl-C."""
    monkeypatch.setattr(live, "CALM_S", 0.0)

    def watch(looks: list[Any], *, as_json: bool) -> None:
        client: Any = _Client(looks)
        view = View(client.read, lambda data: [f"now {data}"])
        code = live.watching(view, lambda: live.hear(client), as_json=as_json)
        assert code == 0, "Ctrl-C is the usual end of it"

    return watch


def test_watching_tells_a_program_each_change_in_a_line(
    watched: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is as it was is not told again."""
    watched([{"a": 1}, {"a": 1}, {"a": 2}], as_json=True)
    out = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in out] == [{"a": 1}, {"a": 2}]


def test_watching_goes_on_while_nobody_answers(
    watched: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so once, and who is missing by then; it shows what there is as soon as it can."""
    lost = [Unreachable(f"no coordinator did in {n} s\nstart one") for n in (2, 4)]
    watched([1, *lost, Unreachable("no broker"), 2], as_json=False)
    done = capsys.readouterr()
    assert done.out.split("\n") == ["now 1", "", "now 2", ""]
    assert done.err.splitlines() == [
        "no coordinator did in 2 s; still trying", "no broker; still trying", "it is back",
    ]  # fmt: skip


def test_no_figure_is_parted_from_its_unit() -> None:
    """In a line, and in a cell that goes on in the next one; what is read or copied has blanks."""
    said = "pi: the job goes back into the queue in 12 s, and 46.2 GiB were free `fleet why job`"
    for window in range(24, 90):
        table = Table([Column("WHY", wrap=True)], [[said]])
        for shown in (Line(said, indent=2), table):
            text = _text([shown], window)
            lines = [line.strip() for line in text.splitlines()]
            assert any("12 s" in line for line in lines), text
            assert any("46.2 GiB" in line for line in lines), text
            assert any("`fleet why job`" in line for line in lines), text
            assert said in " ".join(lines)
            assert max(map(len, text.splitlines())) <= window
