"""`fleet doctor` as a person runs it, and what it has found."""

from __future__ import annotations

import json

from tests.harness.verbs import Done, process

NOWHERE = "mqtt://127.0.0.1:1"


def doctor(*arguments: str, **variables: str) -> Done:
    return process("doctor", *arguments, environment=variables)


def checks(done: Done) -> dict[str, tuple[str, str]]:
    """Return level and text of each check; of several with one name the worst."""
    found: dict[str, tuple[str, str]] = {}
    for one in json.loads(done.stdout)["checks"]:
        if one["level"] != "ok" or one["check"] not in found:
            found[one["check"]] = (one["level"], f"{one['text']}; {one['remedy']}")
    return found


def checked(*arguments: str, **variables: str) -> dict[str, tuple[str, str]]:
    """Run it for a script; see `checks`."""
    return checks(doctor(*arguments, "--json", **variables))
