"""A report out of somebody's artifact, and the artifacts that the web page has fetched."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from broker.errors import BadMessage, BadStream, FleetError, LocalError
from coordinator.web.artifacts import Artifacts, Report, metric_rows, read_report

REPORT = {
    "training": {"best_epoch": 2, "curve": [[0.9, 0.95], [0.5, 10**400], 7]},
    "simulated": True,
}


def _bundle(files: dict[str, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return zstandard.compress(plain.getvalue())


class _Store:
    """Where artifacts are fetched from; it counts how often."""

    def __init__(self, data: bytes) -> None:
        self.data, self.fetched = data, 0
        self.artifact_id = hashlib.sha256(data).hexdigest()

    def fetch(
        self, job_id: str, attempt: int | None, target: Path, tell: Callable[[int, int], None]
    ) -> str:
        self.fetched += 1
        target.write_bytes(self.data)
        tell(len(self.data), len(self.data))
        return self.artifact_id


@pytest.mark.parametrize(
    "document",
    [REPORT, {"training": 7}, {"training": {"best_epoch": "x", "curve": {}}}, {}],
)
def test_a_report_of_another_shape_shows_less(tmp_path: Path, document: Any) -> None:
    """Nothing in it is believed to have its shape."""
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document), "utf-8")
    curve = ((1, 0.9, 0.95), (2, 0.5, None))
    expected = (curve, 2, True) if document is REPORT else ((), None, False)
    report = read_report(path, None)
    assert (report.curve, report.best_epoch, report.simulated) == expected


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"{", b"[]"])
def test_garbage_for_a_report_is_told(tmp_path: Path, content: bytes) -> None:
    """In a sentence."""
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(BadMessage, match="cannot be read"):
        read_report(path, None)


def test_metrics_have_their_intervals_beside_them() -> None:
    """What is no number is left out."""
    metrics = {"auroc": 0.9, "auroc_ci": [0.8, 0.95], "note": "x", "bad": float("nan"), "n": 5}
    metrics |= {"long": 10**400, "n_ci": [-(10**400), 9]}
    assert metric_rows(metrics) == [("auroc", "0.9000", "0.800 to 0.950"), ("n", "5.0000", "")]


def test_an_artifact_is_fetched_once_for_all_who_ask(tmp_path: Path) -> None:
    """At the same time, or later."""
    store = _Store(b"bytes")

    async def ask() -> list[Path]:
        artifacts = Artifacts(tmp_path, store.fetch)
        many = [artifacts.get("job", store.artifact_id) for _ in range(5)]
        return [*await asyncio.gather(*many), await artifacts.get("job", store.artifact_id)]

    paths = asyncio.run(ask())
    assert store.fetched == 1
    assert {path.read_bytes() for path in paths} == {b"bytes"}


def test_the_report_of_a_bundle_is_read_and_nothing_else_of_it_is_kept(tmp_path: Path) -> None:
    """Weights are not left lying about in two copies."""
    store = _Store(_bundle({
        "model/weights.bin": b"w" * 1000,
        "reports/gbt_oracle_train.json": json.dumps(REPORT).encode(),
        "reports/gbt_oracle_train.html": b"<h1>drawings</h1>",
    }))  # fmt: skip
    artifacts = Artifacts(tmp_path, store.fetch)
    report = asyncio.run(artifacts.report("job", store.artifact_id))
    assert report.page is not None
    assert report.page.read_bytes() == b"<h1>drawings</h1>"
    assert sorted(path.suffix for path in tmp_path.rglob("*")) == [".html", ".zst"]


def test_a_report_is_read_once_for_all_who_ask(tmp_path: Path) -> None:
    """Two windows are opened at the same time, and none takes the other's files away."""
    store = _Store(_bundle({
        "reports/gbt_oracle_train.json": json.dumps(REPORT).encode(),
        "reports/gbt_oracle_train.html": b"<h1>drawings</h1>",
    }))  # fmt: skip

    async def ask() -> list[Report]:
        artifacts = Artifacts(tmp_path, store.fetch)
        asked = (artifacts.report("job", store.artifact_id) for _ in range(8))
        return await asyncio.gather(*asked)

    reports = asyncio.run(ask())
    assert all(report is reports[0] for report in reports)
    assert reports[0].page is not None
    assert reports[0].page.read_bytes() == b"<h1>drawings</h1>"


@pytest.mark.parametrize(
    ("files", "error"),
    [({"a.txt": b"x"}, "no report"), ({"../x_train.json": b"{}"}, "no plain relative name")],
)
def test_a_bundle_that_is_not_as_it_should_be_is_told(
    tmp_path: Path, files: dict[str, bytes], error: str
) -> None:
    """And leaves nothing unpacked behind."""
    store = _Store(_bundle(files))
    artifacts = Artifacts(tmp_path / "kept", store.fetch)
    (tmp_path / "kept").mkdir()
    with pytest.raises(FleetError, match=error):
        asyncio.run(artifacts.report("job", store.artifact_id))
    assert [path.name for path in tmp_path.rglob("*") if path.is_dir()] == ["kept"]


def test_what_is_no_bundle_or_another_artifact_is_told(tmp_path: Path) -> None:
    """And shows no report."""
    store = _Store(bytes(1000))
    artifacts = Artifacts(tmp_path, store.fetch)
    with pytest.raises(BadStream):
        asyncio.run(artifacts.report("job", store.artifact_id))
    with pytest.raises(LocalError, match="another artifact"):
        asyncio.run(Artifacts(tmp_path, store.fetch).get("job", "0" * 64))
