"""tracing.md speaks of topics that there are, and its traces are of today's messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.protocol import messages as m
from broker.protocol.acl import matches
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from tests.harness.tree import JOB, tree

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/tracing.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
TOPICS = Topics("fleet")
ADAPTERS = {
    Kind.STATUS: m.STATUS,
    Kind.COORDINATOR_STATUS: m.STATUS,
    Kind.CAPABILITY: m.CAPABILITY,
    Kind.HEARTBEAT: m.HEARTBEAT,
    Kind.REQUEST: m.AGENT_REQUEST,
    Kind.RESPONSE: m.AGENT_RESPONSE,
    Kind.PROGRESS: m.PROGRESS,
    Kind.JOB: m.JOB_ROW,
    Kind.SUMMARY: m.SUMMARY,
    Kind.GRANT: m.GRANT,
    Kind.HOLDER: m.HOLDER,
}
EVERY_TOPIC = [topic.replace("/one/", "/gaming-pc/") for *_, topic in tree(TOPICS)]


def _filters(page: str) -> list[str]:
    return [found.replace("$ID", JOB) for found in re.findall(r"-[tT] ['\"]([^'\"]+)['\"]", page)]


def _told() -> Iterator[tuple[str, str]]:
    """The messages of the traces, topics and payloads as long as they were."""
    for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        for topic, payload in zip(lines[::2], lines[1::2], strict=True):
            assert payload.startswith("    "), payload
            yield re.sub(r"([0-9a-f]{8})…", lambda hit: hit[1].ljust(64, "0"), topic), payload[4:]


def _whole(payload: str) -> str:
    payload = payload.replace("{…}", "{}")
    payload = re.sub(r'"receipt":"(\w+)…"', lambda hit: f'"receipt":"{hit[1]:0<32}"', payload)
    payload = re.sub(r'"([0-9a-f]{8})…"', lambda hit: f'"{hit[1]:0<64}"', payload)
    return payload.replace("…", "")


@pytest.mark.parametrize("page", [PAGE, README], ids=["tracing", "readme"])
def test_every_filter_fits_a_topic_that_there_is(page: str) -> None:
    """A command of the docs never waits for what nobody says; no chunk comes where none should."""
    found = _filters(page)
    assert found
    for one in found:
        assert any(matches(one, topic) for topic in EVERY_TOPIC), one
    bulk = [topic for topic in EVERY_TOPIC if "/chunk/" in topic]
    assert all(matches("fleet/+/+/+/chunk/#", topic) for topic in bulk)


@pytest.mark.parametrize("page", [PAGE, README], ids=["tracing", "readme"])
def test_what_shows_everything_leaves_out_what_would_hide_it(page: str) -> None:
    """Chunks, and the answers with whole tables that every open `fleet top` asks for."""
    found = re.findall(r"-t 'fleet/#'.*", page)
    assert found
    for one in found:
        left_out = re.findall(r"-T '([^']+)'", one)
        shown = [topic for topic in EVERY_TOPIC if not any(matches(f, topic) for f in left_out)]
        assert not [topic for topic in shown if "/chunk/" in topic or "/operator/" in topic], one
        assert {TOPICS.job(JOB), TOPICS.status("gaming-pc"), TOPICS.broker_refused()} <= set(shown)


def test_the_traces_are_of_todays_messages() -> None:
    """Each topic parses, each payload fits its model and has no field that is gone."""
    kinds = set()
    for topic, payload in _told():
        parsed = TOPICS.parse(topic)
        kinds.add(parsed.kind)
        if payload == "(empty)" or parsed.kind is Kind.LOG:
            continue
        adapter = ADAPTERS[parsed.kind]
        message = m.decode(adapter, _whole(payload).encode())
        assert set(json.loads(_whole(payload))) == set(message.model_dump()), topic
    assert kinds >= ADAPTERS.keys() | {Kind.LOG}


def test_what_a_person_looks_for_comes_first() -> None:
    for topic, payload in _told():
        kind = TOPICS.parse(topic).kind
        if kind in {Kind.REQUEST, Kind.RESPONSE, Kind.JOB}:
            shown = json.loads(_whole(payload))
            sent = json.loads(m.encode(m.decode(ADAPTERS[kind], _whole(payload).encode())))
            assert list(shown) == list(sent), topic


def test_the_traces_tell_their_stories() -> None:
    """From a pending job to a stored artifact; a failure in its words."""
    life, failure = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    for word in ('"assign"', '"accepted"', '"started"', '"epoch":', '"finished"', '"missing"',
                 '"completed"', '"stored"'):  # fmt: skip
        assert word in life, word
    assert '"transient":false' in failure
    assert '"state":"failed"' in failure
