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
from coordinator.web.artifacts import Artifacts, Report, read_report

REPORT = {
    "training": {"best_epoch": 2, "curve": [[0.9, 0.95], [0.5, 10**400], 7]},
    "simulated": True,
}


TRAINED = {
    "reports/gbt_oracle_train.json": json.dumps(REPORT).encode(),
    "reports/gbt_oracle_train.html": b"<h1>drawings</h1>",
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
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document), "utf-8")
    curve = ((1, 0.9, 0.95), (2, 0.5, None))
    expected = (curve, 2, True) if document is REPORT else ((), None, False)
    report = read_report(path, None)
    assert (report.curve, report.best_epoch, report.simulated) == expected


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"{", b"[]"])
def test_garbage_for_a_report_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(BadMessage, match="cannot be read"):
        read_report(path, None)


def test_an_artifact_and_its_report_are_fetched_once_for_all_who_ask(tmp_path: Path) -> None:
    """At the same time, or later; and none takes the other's files away.

    Of the report's bundle nothing else is kept.
    """
    store = _Store(_bundle(TRAINED | {"model/weights.bin": b"w" * 1000}))

    async def ask() -> tuple[list[Path], list[Report]]:
        artifacts = Artifacts(tmp_path, store.fetch)
        many = [artifacts.get("job", store.artifact_id) for _ in range(5)]
        paths = [*await asyncio.gather(*many), await artifacts.get("job", store.artifact_id)]
        asked = (artifacts.report("job", store.artifact_id) for _ in range(8))
        return paths, await asyncio.gather(*asked)

    paths, reports = asyncio.run(ask())
    assert store.fetched == 1
    assert {path.read_bytes() for path in paths} == {store.data}
    assert all(report is reports[0] for report in reports)
    assert reports[0].page is not None
    assert reports[0].page.read_bytes() == b"<h1>drawings</h1>"
    assert sorted(path.suffix for path in tmp_path.rglob("*")) == [".html", ".zst"]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (_bundle({"a.txt": b"x"}), FleetError, "no report"),
        (_bundle({"../x_train.json": b"{}"}), FleetError, "no plain relative name"),
        (bytes(1000), BadStream, "."),
    ],
)
def test_a_bundle_that_is_not_as_it_should_be_is_told(
    tmp_path: Path, data: bytes, error: type[Exception], words: str
) -> None:
    """Nothing is left unpacked; another artifact than the one that was asked for is told, too."""
    store = _Store(data)
    artifacts = Artifacts(tmp_path / "kept", store.fetch)
    (tmp_path / "kept").mkdir()
    with pytest.raises(error, match=words):
        asyncio.run(artifacts.report("job", store.artifact_id))
    assert [path.name for path in tmp_path.rglob("*") if path.is_dir()] == ["kept"]
    with pytest.raises(LocalError, match="another artifact"):
        asyncio.run(artifacts.get("job", "0" * 64))
