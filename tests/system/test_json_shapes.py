"""The keys and types of every verb's `--json`: what scripts rely on.

`python -m pytest -m "" tests/system/test_json_shapes.py` writes `json_shapes.json` anew where it is
missing, and fails. A difference belongs into the description of the change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from coordinator.cli import main
from tests.harness.fleet import Fleet, wait_until

GOLDEN: Final = Path(__file__).with_name("json_shapes.json")
# A verb's key here, and its words. `{root}` is a folder of the test's own.
READING: Final = {
    "check": "check {manifest}",
    "plan": "plan {manifest}",
    "status": "status",
    "list": "list",
    "show": "show gbt-oracle",
    "why": "why gru-oracle",
    "logs": "logs gbt-oracle",
    "workers": "workers",
    "events": "events",
    "stats": "stats",
    "get": "get gbt-oracle -o {root}/got",
}
CHANGING: Final = {
    "pause": "pause",
    "drain": "drain pi",
    "resume": "resume pi",
    "snooze": "snooze pi 1h",
    "reload": "reload",
    "cancel": "cancel gru-oracle --yes",
    "cancel again": "cancel gru-oracle --yes",
    "requeue": "requeue gru-oracle --yes",
    "cancel several": "cancel --status pending --yes",
    "run": "run --model gbt --mode oracle -H epochs=2 --require-cuda",
    "unknown job": "show nothing",
}
ALONE: Final = {
    "operator-key": "operator-key -o {root}/operator.key",
    "init": "init --broker broker.example --operator anna -o {root}/pki",
    "enroll": "enroll pi --home {root}/pki -o {root}/pi.bundle",
    "join": "join {root}/pi.bundle -o {root}/pi",
    "revoke": "revoke pi --home {root}/pki",
}


def shape(value: Any, path: str = "") -> dict[str, Any]:
    """Return the type of each part of a value by its path; of a list, of the first part."""
    match value:
        case {"event": _, "why": _}:
            value = value | {"why": "a cause, whose figures depend on its code"}
        case {"metrics": {"auroc": _}}:
            value = value | {"metrics": "as its report has them: docs/reference/report.schema.json"}
        case {"capability": _, "heartbeat": _}:
            published = "as its host publishes it: docs/reference/asyncapi.yaml"
            value = value | {"capability": published, "heartbeat": published}
    if isinstance(value, dict) and value:
        parts = [shape(one, f"{path}.{key}") for key, one in value.items()]
        return {at: kind for part in parts for at, kind in part.items()}
    if isinstance(value, list) and value:
        return shape(value[0], f"{path}[]")
    # JSON has numbers.
    return {path: "int" if isinstance(value, float) else type(value).__name__}


def test_json_has_the_keys_that_scripts_rely_on(
    fleet: Fleet, short: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    marked = f"{short}\nhyper.colsample = 0.5"  # its result is below its floor
    fleet.plan(marked, 'model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    fleet.coordinator()
    agent = fleet.agent()
    fleet.until("gbt-oracle", "completed")
    wait_until(lambda: "nothing of it is left here" in agent.said(), "the agent has no job left")
    monkeypatch.setenv("FLEET_BROKER", fleet.broker_url)
    monkeypatch.setenv("FLEET_TOPIC_ROOT", fleet.root)
    found: dict[str, Any] = {}

    def said(words: str) -> tuple[int, Any]:
        code = main([*words.format(root=tmp_path, manifest=fleet.manifest).split(), "--json"])
        out = capsys.readouterr().out
        return code, json.loads(out) if out else None

    def ask(verbs: dict[str, str]) -> None:
        for name, words in verbs.items():
            code, answer = said(words)
            found[name] = {"exit": code, **shape(answer)} if code else shape(answer)

    ask(READING | CHANGING)
    agent.stop()
    ask({"forget": "forget pi"})
    monkeypatch.delenv("FLEET_BROKER")
    ask(ALONE)
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        pytest.fail(f"{GOLDEN.name} was missing, and is written now")
    assert found == json.loads(GOLDEN.read_text())
