"""The page beside a report: whole in itself, safe to open, and it says what the report says."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation import plots
from agent.trainer.evaluation.evaluate import Evaluation, evaluate
from agent.trainer.evaluation.metrics import Scored

VOID = {"meta", "br", "img", "link", "input"}


class Page(HTMLParser):
    """What a browser would find in a page: its texts, and what it would fetch."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text("utf-8")
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(self.source)
        assert self._open == []
        self.fetched += re.findall(r"url\((?!#)[^)]*\)|@import[^;]*", self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in {"src", "href", "srcset"} and not str(value).startswith("#"):
                self.fetched.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts += [data.strip()] if data.strip() else []


def titles(page: Page) -> set[str]:
    """The drawings that are on the page."""
    return {text for text in page.texts if text in {
        "ROC", "Precision and recall", "Calibration", "Learning curve", "Hosts",
    }}  # fmt: skip


@pytest.mark.parametrize("model", ["gbt", "transformer_ssl"])
def test_the_page_says_what_the_report_says(
    model: str, simulated: Path, tmp_path: Path, run_job: Any
) -> None:
    """Every metric with its interval, every drawing that there can be, and nothing to fetch."""
    run_job(model, simulated, tmp_path, "--epochs", "3", "--n-resamples", "50")
    report = json.loads((tmp_path / f"{model}_oracle_train.json").read_text())
    page = Page(tmp_path / f"{model}_oracle_train.html")
    assert page.fetched == []
    assert not {"script", "iframe", "object", "link"} & set(page.tags)
    assert len(page.ids) == len(set(page.ids))
    auroc, (low, high) = report["metrics"]["auroc"], report["metrics"]["auroc_ci"]
    at = page.texts.index("AUROC")
    assert page.texts[at + 1 : at + 3] == [f"{auroc:.3f}", f"{low:.3f} to {high:.3f}"]
    wanted = {"ROC", "Precision and recall", "Learning curve", "Hosts"}
    assert titles(page) == wanted | ({"Calibration"} if model == "gbt" else set())
    assert ("No drawing of calibration: the score is no probability." in page.texts) == (
        model != "gbt"
    )
    assert "The telemetry is simulated: no real machine was measured." in page.texts
    assert set(report["per_host"]) <= set(page.texts)


def test_names_from_the_data_are_text_and_nothing_else(
    raw: Any, tmp_path: Path, run_job: Any
) -> None:
    """A host's or class's name is shown as it is: neither markup nor a formula."""
    names = ["<script>alert(1)</script>", "$x^2$", 'a"b&c', "</svg><b>"]
    rows = []
    for host in names:
        labels = [("<i>rest", "w&lk")[at // 30 % 2] for at in range(240)]
        rows += raw.episode(host, "1", labels)
    raw.schema |= {"unlabelled": None, "positive": "w&lk"}
    run_job("gbt", raw.prepare(raw.write(rows)), tmp_path / "out", "--epochs", "3")
    page = Page(tmp_path / "out" / "gbt_oracle_train.html")
    report = json.loads((tmp_path / "out" / "gbt_oracle_train.json").read_text())
    assert not {"script", "b", "i"} & set(page.tags)
    shown = "\n".join(page.texts)
    assert all(name in shown for name in [*names, "<i>rest", "w&lk"])
    tested = report["split"]["hosts"]["test"]
    assert all(page.texts.count(name) >= 1 for name in tested)


def an_evaluation(*hosts: str) -> Evaluation:
    """Return an evaluation of ten windows on each of the hosts."""
    n = 10 * len(hosts)
    rng = np.random.default_rng(0)
    label = np.arange(n) % 2
    host = np.arange(n) // 10
    index = WindowIndex(
        hosts=hosts, episodes=hosts,
        host=host, episode=host, offset=10 * np.arange(n), start=10 * (np.arange(n) % 10),
        label=label, length=10,
    )  # fmt: skip
    part = Scored(np.arange(n), label, np.clip(label * 0.2 + rng.random(n) * 0.8, 0, 1))
    return evaluate(index, part, part, ("0", "1"), target_fpr=0.05, n_resamples=20, seed=0)


def test_a_fleet_of_hosts_still_fits() -> None:
    """Of many hosts the worst are drawn, and how many are not is told."""
    evaluation = an_evaluation(*(f"h{number:03}" for number in range(100)))
    drawn = plots.per_host(evaluation, "auroc", "AUROC")
    assert drawn is not None
    assert "The 40 worst of 100 are shown." in drawn.caption
    worst = min(evaluation.per_host, key=lambda name: evaluation.per_host[name]["auroc"])
    best = max(evaluation.per_host, key=lambda name: evaluation.per_host[name]["auroc"])
    assert f">{worst}</text>" in drawn.svg
    assert f">{best}</text>" not in drawn.svg


def test_a_users_own_settings_change_nothing() -> None:
    """The same figures give the same bytes, whatever matplotlib was told."""
    evaluation = an_evaluation("a", "b", "c")
    plain = plots.roc(evaluation, ("0", "1"))
    with mpl.rc_context({"axes.grid": False, "font.size": 20, "svg.fonttype": "path"}):
        assert plots.roc(evaluation, ("0", "1")) == plain
        assert mpl.rcParams["font.size"] == 20
