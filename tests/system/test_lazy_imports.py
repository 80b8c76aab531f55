"""What a program does not need it does not load: start-up and memory come from what is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.secure import House

pytestmark = pytest.mark.system

# None of these is for the daemons, nor for a command that shows a few lines.
HEAVY = {
    "IPython", "amqtt", "fastapi", "jinja2", "matplotlib", "nicegui", "numpy", "pandas",
    "prometheus_client", "pyarrow", "safetensors", "scipy", "sklearn", "starlette", "textual",
    "torch", "transitions", "typer", "uvicorn", "websockets", "xgboost", "yaml",
}  # fmt: skip
BUNDLES = {"tarfile", "zstandard", "cryptography"}
# What libraries would import, and nobody needs here (`broker/system/import_blocks.py`).
NEEDLESS = {
    "email", "http", "importlib.metadata", "urllib.request",
}  # fmt: skip
IDLE = {"broker.protocol.messages.fleet"}
OTHERS_MESSAGES = {
    f"broker.protocol.messages.{name}" for name in ("grants", "homeassistant", "jobs")
}
_ASKING = "import coordinator.client.client"
_VIEWS = f"{_ASKING}, coordinator.ui.terminal"


def loaded(program: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running `program`."""
    tell = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{tell}"],
        capture_output=True, text=True, check=True, timeout=60,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_an_idle_host_with_a_certificate_has_loaded_no_more(tmp_path: Path) -> None:
    who = House.make(tmp_path / "house").identity("pi")
    (tmp_path / "data").mkdir()
    options = ["--broker", "mqtts://127.0.0.1:1", "--identity", str(who), "--state", str(tmp_path)]
    names = loaded(
        "import os, signal\n"
        "from agent.service import __main__ as service\n"
        "probed = service.Service._probe\n"
        "def probe(agent):\n"
        "    probed(agent)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "service.Service._probe = probe\n"
        f"assert service.main({[*options, '--data', str(tmp_path / 'data')]!r}) == 0"
    )
    assert "broker.pki.identity" in names
    never = HEAVY | BUNDLES | NEEDLESS | IDLE | {"asyncio", "click", "rich", "sqlite3"}
    assert names & never <= ({"psutil"} if sys.platform != "linux" else set())


@pytest.mark.parametrize(("program", "never"), [
    ("import agent.service.__main__", HEAVY | BUNDLES | NEEDLESS | {
        "agent.trainer.common.config", "asyncio", "broker.protocol.messages.homeassistant",
        "broker.protocol.messages.operators", "click", "coordinator", "rich", "sqlite3",
    }),
    ("import coordinator.service.__main__", HEAVY | BUNDLES | {
        "agent", "asyncio", "broker.pki.ca", "click", "coordinator.cli", "rich",
    }),
    (f"{_VIEWS}, coordinator.cli.status, coordinator.ui.outlook", HEAVY | BUNDLES | OTHERS_MESSAGES
     | NEEDLESS | {"agent", "asyncio", "difflib", "rich.live", "rich.markdown", "rich.syntax",
        "sqlite3", "tomllib"}),
    (f"{_VIEWS}, coordinator.cli.lists", HEAVY | BUNDLES | OTHERS_MESSAGES
     | {"coordinator.scheduler.forecast", "rich.live", "rich.markdown"}),
    ((f"{_ASKING}, coordinator.cli.cancel_requeue, coordinator.cli.logs, coordinator.cli.show, "
      "coordinator.cli.why"),
     HEAVY | BUNDLES | OTHERS_MESSAGES | NEEDLESS | {"coordinator.client.rows", "rich"}),
    ("import coordinator.cli; coordinator.cli.main(['--help'])",
     HEAVY | BUNDLES | {"paho", "pydantic", "rich", "broker.protocol.messages"}),
    ("import coordinator.cli; coordinator.cli.main(['completion', 'fish'])",
     HEAVY | BUNDLES | {"paho", "pydantic", "rich", "broker.protocol.messages"}),
    (("import coordinator.cli; coordinator.cli.main("
     "['check', 'etc/training_manifest.toml.example', '--offline'])"),
     HEAVY | BUNDLES | {"paho", "psutil", "coordinator.client.client"}),
    ("import coordinator.cli; coordinator.cli.main(['status', '--help'])",
     HEAVY | BUNDLES | {"paho", "rich.live", "coordinator.client.client"}),
], ids=["agent", "coordinator", "status", "list", "completion of a job", "help", "completion",
        "check", "help of a verb"],
)  # fmt: skip
def test_what_is_not_needed_is_not_loaded(program: str, never: set[str]) -> None:
    """Whoever adds an import to the top of a module sees here who pays for it."""
    needless = loaded(program) & never
    assert not needless


def test_a_message_brings_its_module_and_no_other() -> None:
    """What an agent says of itself needs nothing of what operators ask."""
    names = loaded("from broker.protocol.messages import STATUS, Status, decode, encode")
    ours = {name for name in names if name.startswith("broker.protocol.messages.")}
    assert ours == {f"broker.protocol.messages.{name}" for name in ("hosts", "values")}
