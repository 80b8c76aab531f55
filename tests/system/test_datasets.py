"""Datasets, from a folder to a host that reads them: real programs on the real embedded broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.protocol import messages as m
from tests.harness.fleet import Fleet, wait_until
from tests.harness.verbs import Done, process

MODEL = ("run", "--model", "gbt", "--mode", "oracle", "--name", "mine")
Verb = Callable[..., Done]


@pytest.fixture
def verb(fleet: Fleet) -> Verb:
    """`verb(*words)`: the command line, aimed at the test's fleet."""
    return lambda *words: process(*words, "--timeout=60", environment=fleet.environment)


def test_a_dataset_is_pushed_with_its_job_and_removed_after_it(fleet: Fleet, verb: Verb) -> None:
    """No host is there: the job waits."""

    def listed() -> list[str]:
        rows = verb("data", "list", "--json").json()
        return [f"{row['name']}@{row['digest']}" for row in rows]

    folder = fleet.tmp / "tree"
    folder.mkdir()
    (folder / "numbers").write_bytes(b"some numbers")
    fleet.coordinator()
    assert verb(*MODEL, "--data", f"prepared={folder}").returncode == 0
    (title,) = listed()
    (fleet.tmp / "none").mkdir()
    (fleet.tmp / "none" / "empty").touch()
    first = verb("data", "push", "none", fleet.tmp / "none")
    assert "already" not in first.stderr, "there are no bytes that could be sent"
    assert verb("data", "rm", "none").returncode == 0
    shell = {"_FLEET_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    tab = {"COMP_WORDS": "fleet run --data=prepared=pre", **shell}
    wait_until(
        lambda: process(environment=fleet.environment | tab).text()
        == f"plain,prepared={title[: len('prepared@') + 12]}\n",
        "what Tab offers, which has a deadline",
    )  # fmt: skip
    assert title.startswith("prepared@")
    assert fleet.ask(m.AskShow, job="mine")["data"] == {"prepared": title}
    again = verb(*MODEL, "--data", f"prepared={title[:20]}", "--json").json()
    assert again["added"] is False, "the same data is the same job"
    assert verb("data", "rm", "prepared").returncode == 1
    assert verb("cancel", "mine", "--yes").returncode == 0
    assert verb("data", "rm", "prepared").returncode == 0
    assert listed() == []


def test_a_host_without_prepared_data_trains_on_what_the_fleet_carries(
    fleet: Fleet, verb: Verb
) -> None:
    """Then the fleet knows that it holds the dataset."""
    prepared, fleet.data = fleet.data, fleet.tmp / "nothing"
    fleet.data.mkdir()
    fleet.coordinator()
    fleet.agent()
    reads = ("--data", f"prepared={prepared}")
    assert verb(*MODEL, "--n-resamples", "20", "-H", "epochs=3", *reads).returncode == 0
    assert fleet.until("mine", "completed")["host"] == "pi"
    wait_until(
        lambda: verb("data", "list", "--json").json()[0]["hosts"] == ["pi"],
        "the host's word that it holds the dataset",
    )
