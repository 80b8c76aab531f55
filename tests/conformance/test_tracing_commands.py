"""The commands of tracing.md, as they are printed, on brokers that want certificates."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import secured, secured_brokers
from tests.harness.secured import Secured

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("docs/how-to/tracing.md", "docs/how-to/operations.md", "README.md")
PAGES = "".join((ROOT / name).read_text("utf-8") for name in NAMES)
WHO = "observer:ann"
NOT_HERE = {"-h", "-p", "--cafile", "--cert", "--key"}


def _commands() -> list[list[str]]:
    """Each `mosquitto_sub` of the pages, what is piped into another program without that."""
    text = PAGES.replace("\\\n", " ").replace("$ID", "5a" * 32)
    word = r"'[^']*'|\"[^\"]*\"|[^'\"`|\n]"
    found = re.findall(rf"(?:^|`)(mosquitto_sub -(?:{word})*)", text, re.MULTILINE)
    return [shlex.split(one) for one in found]


@pytest.fixture(scope="module", params=["embedded", "mosquitto"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Each broker with the files that the fleet renders for it."""
    made = secured_brokers.MAKERS[request.param](
        tmp_path_factory.mktemp("b"), people=(WHO,), hosts=()
    )
    made.start()
    yield made
    made.end()


def test_there_are_commands() -> None:
    assert len(_commands()) > 10


@pytest.mark.parametrize("command", _commands(), ids=shlex.join)
def test_an_observer_is_let_in_by_each_command(broker: Secured, command: list[str]) -> None:
    shown = broker.house.known(WHO)
    own: list[str] = []
    words = iter(command)
    for word in words:
        if word in NOT_HERE:
            next(words)
        else:
            own.append(word)
    where = ["-h", "127.0.0.1", "-p", str(broker.ports.people), "-E"]
    for option, name in (("cafile", "ca.crt"), ("cert", "client.crt"), ("key", "client.key")):
        where += [f"--{option}", str(shown / name)]
    done = subprocess.run(
        [*own, *where],
        capture_output=True, text=True, check=False, timeout=secured.DEADLINE_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
