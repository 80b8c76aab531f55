"""A wheel of this tree, built once, and what runs the installers on it without a network."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.trainer.data.schema import SCHEMA_FILE, FeatureSchema, write_json
from tests.harness.brokers import embedded

ROOT = Path(__file__).resolve().parents[2]
ETC = ROOT / "etc"
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as pip would fetch it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in ("agent", "broker", "coordinator"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--no-index", "--wheel-dir", str(folder), str(source)],
        check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def broker_url() -> Iterator[str]:
    broker = embedded()
    broker.start()
    yield broker.url
    broker.end()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Prepared data, as much of it as `fleet doctor` needs to see."""
    schema = FeatureSchema(
        simulated=True, task="binary", window=2, stride=1, period_s=1.0, label_rule="any",
        classes=(), class_counts={}, unlabelled_windows=0, windows=7, rows=8, hosts=("a",),
        channels={}, features={}, files={},
    )  # fmt: skip
    (tmp_path / "data").mkdir()
    write_json(tmp_path / "data" / SCHEMA_FILE, schema)
    return tmp_path / "data"


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Done]:
    """`install(role, *options)`: run an installer; what it needs of other packages is at hand."""

    def run(role: str, *options: str) -> Done:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLEET_")},
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
            "PYTHONPATH": os.pathsep.join(site.getsitepackages()),
            "TMPDIR": str(tmp_path),
        }
        return subprocess.run(
            ["/bin/sh", str(ETC / f"install-{role}.sh"), *options, f"--python={sys.executable}"],
            capture_output=True, text=True, timeout=180, check=False, env=environment,
            cwd=tmp_path,
        )  # fmt: skip

    return run
