"""Tables and what is watched, in windows of every width."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import click
import pytest
from rich.console import Console
from rich.text import Text

from coordinator.cli.lists import _draw_hosts as draw_hosts
from coordinator.cli.lists import _draw_jobs as draw_jobs
from coordinator.client.contact import Unreachable
from coordinator.jobs import reason_words
from coordinator.ui import live
from coordinator.ui.fitted_table import Column, Table
from coordinator.ui.live import View
from coordinator.ui.live_output import Window
from coordinator.ui.terminal import PIPE_WIDTH, Line
from coordinator.ui.words import JSON
from tests.harness.drawn import drawn

JOB = {
    "job_id": "a" * 64, "model": "transformer", "mode": "realistic",
    "created_at": "2026", "name": "transformer_ssl-realistic-0027", "state": "running",
    "host": "gaming-pc-12", "metrics": {"auroc": 0.912}, "started_at": "2026-01-02T11:00:00Z",
    "finished_at": None, "attempt": 1, "priority": 10, "artifact_id": None, "error": None,
    "in_plan": True,
    "progress": {"attempt": 1, "phase": "train", "epoch": 24, "epochs": 60, "eta_s": 200.0},
    "held": {"phase": "running"}, "share": 0.4, "left_s": 200.0,
}  # fmt: skip
GPU = {
    "index": 0, "vram_total_bytes": 24 << 30, "name": "NVIDIA GeForce RTX 4090",
    "vram_free_bytes": 20 << 30, "use_percent": 91.0, "power_w": 412.0,
}  # fmt: skip
HOST = {
    "host": "gaming-pc-12", "status": "online", "presence": "online", "condition": "online",
    "barred": [],
    "last_seen": "2026-01-02T11:00:00Z",
    "capability": {
        "session": "s", "instance": "i", "os": "Linux", "arch": "x86_64", "python": "3.12",
        "physical_cores": 8, "gpus": [GPU], "agent_version": "0.1.0",
        "ram_total_bytes": 32 << 30, "ram_available_bytes": 19 << 30,
    },
    "heartbeat": {
        "session": "s", "instance": "i", "seq": 1, "jobs": [],
        "cpu_percent": 85.0, "ram_available_bytes": 19 << 30, "gpus": [GPU],
    },
    "jobs": [{"name": JOB["name"], "job_id": "a", "phase": "running", "progress": 0.4}],
}  # fmt: skip


def _titles(draw: Callable[[Any], Any], row: dict[str, Any], width: int) -> list[str]:
    text = drawn(draw([row]), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text, "a column that does not fit is left out, not cut to a stump"
    return lines[0].split()


@pytest.mark.words
def test_jobs_at_eighty_columns_and_at_more() -> None:
    narrow = _titles(draw_jobs, JOB, 80)
    assert narrow[:5] == ["JOB", "STATE", "HOST", "DONE", "LEFT"]
    assert "ID" not in narrow
    wide = _titles(draw_jobs, JOB, 180)
    assert {"METRIC", "TOOK", "TRY", "PRIO", "MODEL", "MODE", "BEGAN", "ID"} <= set(wide)
    assert not {"ENDED", "ARTIFACT", "CURVE"} & {*wide}, "that says nothing"
    assert "40%" in drawn(draw_jobs([JOB]), 160)
    assert "3 min" in drawn(draw_jobs([JOB]), 160)


def test_hosts_at_eighty_columns_and_at_more() -> None:
    assert _titles(draw_hosts, HOST, 80)[:4] == ["HOST", "STATUS", "JOB", "CPU"]
    assert f"{JOB['name']} 40%" in drawn(draw_hosts([HOST]), 80)
    text = drawn(draw_hosts([HOST]), 160)
    assert all(said in text for said in ("412W", "13/32G", "4.0/24G", " RTX 4090 "))
    gone = {**HOST, "status": "offline", "presence": "cut-off", "condition": "cut-off"}
    told = drawn(draw_hosts([gone]), 160)
    assert "last seen" in told
    assert not {"85%", "13/32G", "4.0/24G", "412W"} & {*told.replace("  ", "\n").split("\n")}
    why = {"code": "drained", "host": "gaming-pc-12", "who": "operator:ann", "at": "2026-11-21"}
    assert "takes no jobs" in drawn(draw_hosts([{**HOST, "jobs": [], "barred": [why]}]), 160)
    drained = drawn(
        draw_hosts([{**HOST, "condition": "drained", "barred": [why]}]), 160
    ).splitlines()[2]
    assert drained.split()[:2] == ["gaming-pc-12", "drained"], "no footnote alone says it"
    bare = {**HOST, "condition": "no data", "jobs": [], "barred": [{"code": "no-data"}]}
    told = drawn(draw_hosts([bare]), 200)
    assert "takes no jobs" not in told, "it takes those that bring their data"
    assert reason_words.words({"code": "no-data"}) in told


def test_what_a_host_is_described_as_is_shown_where_there_is_room() -> None:
    plain = {**HOST, "policy": {"description": ""}}
    told = {**HOST, "policy": {"description": "a desktop"}}
    owners = {**told, "capability": HOST["capability"] | {"description": "Ann's desk"}}  # type: ignore[operator]
    for row, said in ((told, "a desktop"), (owners, "Ann's desk")):
        head, _, line = drawn(draw_hosts([row]), 200).splitlines()
        assert (head.rstrip()[-11:], line.rstrip()[-len(said) :]) == ("DESCRIPTION", said)
        assert said not in drawn(draw_hosts([row]), 80)
        assert max(map(len, drawn(draw_hosts([row]), 80).splitlines())) <= 80
    assert "DESCRIPTION" not in drawn(draw_hosts([plain]), 200)


@pytest.mark.words
@pytest.mark.parametrize("ends", ["", "soon", "2026-01-01T00:00:00", "2126-01-01T00:00:00Z"])
def test_twins_are_told_what_fits_how_they_connect(ends: str) -> None:
    """With certificates another --host would not help; an end that nobody can read is no fault."""
    capability = HOST["capability"] | {"certificate_expires_at": ends}  # type: ignore[operator]
    twins = {**HOST, "presence": "twins", "alone_in_s": 40, "capability": capability}
    told = drawn(draw_hosts([twins]), 200)
    assert ("fleet enroll" in told, "--host" in told) == (bool(ends), not ends)
    assert "; clears in 40 s once one of them has gone\n" in told


def test_what_says_nothing_is_left_out() -> None:
    columns = (Column("NAME"), Column("EMPTY", rank=1), Column("FULL", rank=2))
    table = Table(columns, [("a" * 10, "-", "x" * 5)])
    for window in (20, 80):
        assert drawn([table], window).split()[:2] == ["NAME", "FULL"]


def test_a_row_is_cut_and_aligned_by_what_is_seen_of_it() -> None:
    columns = (Column("NAME", least=8), Column("STATE"), Column("N", rank=1, right=True))
    rows = [("漢字の名前の機械", Text("up", "green"), 1), ("two\nlines", "away", 333)]
    table = Table(columns, rows)
    for _ in range(2):  # what is watched is drawn again and again
        assert drawn([table], 21).splitlines() == [
            "NAME       STATE    N",
            "─" * 21,
            "漢字の名…  up       1",
            "two lines  away   333",
        ]


def test_a_line_is_whole_for_a_program_and_goes_on_indented_for_people() -> None:
    said = "pi: " + "needs CUDA; this host has none; " * 5
    assert drawn([Line(said)], PIPE_WIDTH).splitlines() == [said]
    long = "x" * 2 * PIPE_WIDTH
    assert drawn([long], PIPE_WIDTH).splitlines() == [long]
    lines = drawn([Line(said)], 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("  ") for line in lines[1:])


def test_a_line_uses_all_of_the_window_and_breaks_no_command() -> None:
    said = "lab-ws-1: drained by operator:al just now; `fleet resume lab-ws-1` lifts it"
    assert drawn([Line(said, indent=13)], 60).splitlines() == [
        "lab-ws-1: drained by operator:al just now;",
        "             `fleet resume lab-ws-1` lifts it",
    ]
    words = " ".join(["four"] * 16)  # 79 characters
    assert drawn([Line(f"{words} more", indent=30)], 80).splitlines() == [words, f"{' ' * 30}more"]
    styled = Line(Text("one `two three` four", "red"), indent=2)
    assert drawn([styled], 22).splitlines() == ["one `two three` four"]


def test_a_window_says_what_it_does_not_show() -> None:
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
        with click.Context(click.Command("list")) as context:
            context.meta[JSON] = as_json
            code = live.watching(view, lambda: live.hear(client))
        assert code == 0, "Ctrl-C is the usual end of it"

    return watch


def test_watching_tells_a_program_each_change_in_a_line(
    watched: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    watched([{"a": 1}, {"a": 1}, {"a": 2}], as_json=True)
    out = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in out] == [{"a": 1}, {"a": 2}]


def test_watching_goes_on_while_nobody_answers(
    watched: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    lost = [Unreachable("answer", f"no coordinator did in {n} s", "start one") for n in (2, 4)]
    watched([1, *lost, Unreachable("broker", "no broker"), 2], as_json=False)
    done = capsys.readouterr()
    assert done.out.split("\n") == ["now 1", "", "now 2", ""]
    assert done.err.splitlines() == [
        "no coordinator did in 2 s; still trying", "no broker; still trying", "it is back",
    ]  # fmt: skip


def test_no_figure_is_parted_from_its_unit() -> None:
    said = "pi: the job goes back into the queue in 12 s, and 46.2 GiB were free `fleet why job`"
    for window in range(24, 90):
        table = Table([Column("WHY", wrap=True)], [[said]])
        for shown in (Line(said, indent=2), table):
            text = drawn([shown], window)
            lines = [line.strip() for line in text.splitlines()]
            assert any("12 s" in line for line in lines), text
            assert any("46.2 GiB" in line for line in lines), text
            assert any("`fleet why job`" in line for line in lines), text
            assert said in " ".join(lines)
            assert max(map(len, text.splitlines())) <= window
