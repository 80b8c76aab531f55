"""The page beside a report: whole in itself, safe to open, and it says what the report says."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agent.trainer.common.errors import BadInputError
from agent.trainer.draw import draw
from tests.harness.trainers import report_in

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
    run_job(model, simulated, tmp_path, "--epochs", "3", "--n-resamples", "50")
    report = report_in(tmp_path)
    draw(tmp_path)
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
    names = ["<script>alert(1)</script>", "$x^2$", 'a"b&c', "</svg><b>"]
    labels = [("<i>rest", "w&lk")[at // 30 % 2] for at in range(240)]
    raw.schema |= {"unlabelled": None, "positive": "w&lk"}
    run_job("gbt", raw.of_hosts(dict.fromkeys(names, labels)), tmp_path / "out", "--epochs", "3")
    draw(tmp_path / "out")
    page = Page(tmp_path / "out" / "gbt_oracle_train.html")
    report = report_in(tmp_path / "out")
    assert not {"script", "b", "i"} & set(page.tags)
    shown = "\n".join(page.texts)
    assert all(name in shown for name in [*names, "<i>rest", "w&lk"])
    tested = report["split"]["hosts"]["test"]
    assert all(page.texts.count(name) >= 1 for name in tested)


def test_a_fleet_of_hosts_still_fits(simulated: Path, tmp_path: Path, run_job: Any) -> None:
    run_job("gbt", simulated, tmp_path, "--epochs", "3", "--n-resamples", "0")
    path = tmp_path / "gbt_oracle_train.json"
    report = report_in(tmp_path)
    like = next(iter(report["per_host"].values()))
    report["per_host"] = {
        f"h{number:03}": like | {"metrics": {"auroc": number / 100}} for number in range(100)
    }
    path.write_text(json.dumps(report))
    draw(tmp_path)
    page = Page(tmp_path / "gbt_oracle_train.html")
    assert any("The 40 worst of 100 are shown." in text for text in page.texts)
    assert (">h000</text>" in page.source, ">h040</text>" in page.source) == (True, False)


def test_what_is_no_report_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="has no report"):
        draw(tmp_path)
    (tmp_path / "gbt_oracle_train.json").write_text('{"version": 7}')
    with pytest.raises(BadInputError, match=r"gbt_oracle_train\.json: version"):
        draw(tmp_path)
