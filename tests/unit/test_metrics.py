"""Metrics: the text that Prometheus reads, what is counted, and the door at which it asks."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ConfigError
from broker.protocol.messages import Failed, Gpu
from coordinator.faces import metrics
from coordinator.faces.metrics import METRICS, Inbox
from coordinator.faces.tally import COMMIT_BOUNDS_S, MAX_MODELS, OTHER, Histogram, Tally
from coordinator.service.scrape import CONNECTIONS, Door, Scrapes, parse_door
from tests.harness.coordinator import Fleet, spec

ROOT = Path(__file__).resolve().parents[2]
NOTHING = Inbox({}, {}, connected=True)
LINE = re.compile(r'([a-z_0-9]+)(?:\{((?:[a-z_0-9]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


def _parsed(text: str) -> dict[str, dict[str, float]]:
    """Samples by name, by their labels; raises where a line is not of the format."""
    found: dict[str, dict[str, float]] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            continue
        match = LINE.fullmatch(line)
        assert match, line
        name, labels, value = match.groups()
        assert (labels or "") not in found.setdefault(name, {}), line
        found[name][labels or ""] = float(value)
    return found


class _Metered(Fleet):
    """A fleet whose coordinator counts what it commits."""

    def __init__(self, *specs: Any) -> None:
        self.tally = Tally()
        super().__init__(*specs)

    def start(self) -> None:
        super().start()
        take = self.core.take

        def noted() -> Any:
            changes, effects = take()
            if changes:
                self.tally.on_commit(changes, 0.002)
            return changes, effects

        self.core.take = noted  # type: ignore[method-assign]

    def scraped(self, inbox: Inbox = NOTHING) -> dict[str, dict[str, float]]:
        return _parsed(metrics.render(metrics.read(self.core.world, self.tally, inbox, self.now)))


def test_jobs_and_hosts_are_counted_by_state() -> None:
    """Each state and each presence has its series, also at nought."""
    fleet = _Metered(spec("one"), spec("two"))
    fleet.host("pi").joins()
    fleet.host("pi").runs(fleet.history[-1][0])
    fleet.host("pc").joins()
    fleet.host("pc").status("offline", "goodbye")
    seen = fleet.scraped()
    assert seen["fleet_jobs"]['state="running"'] == 1
    assert seen["fleet_jobs"]['state="failed"'] == 0
    assert len(seen["fleet_jobs"]) == 6
    assert seen["fleet_hosts"]['presence="online"'] == 1
    assert seen["fleet_hosts"]['presence="left"'] == 1
    assert seen["fleet_hosts"]['presence="cut-off"'] == 0
    assert seen["fleet_job_events_total"]['event="started"'] == 1


def test_a_host_shows_its_load_while_it_is_online() -> None:
    """In base units; an old figure would look like a new one, so there is none when it is away."""
    fleet = _Metered()
    host = fleet.host("pc").joins()
    gpu = Gpu(index=0, vram_total_bytes=8 * 2**30, vram_free_bytes=2**30, use_percent=90, power_w=9)
    host.beats(cpu_percent=25.0, load_1m=1.5, gpus=(gpu,))
    seen = fleet.scraped()
    assert seen["fleet_host_online"]['host="pc"'] == 1
    assert seen["fleet_host_cpu_ratio"]['host="pc"'] == 0.25
    assert seen["fleet_host_memory_bytes"]['host="pc"'] == 8 * 2**30
    assert seen["fleet_gpu_use_ratio"]['host="pc",gpu="0"'] == 0.9
    assert seen["fleet_gpu_power_watts"]['host="pc",gpu="0"'] == 9
    host.status("offline", "lost")
    seen = fleet.scraped()
    assert seen["fleet_host_online"]['host="pc"'] == 0
    assert "fleet_host_cpu_ratio" not in seen
    assert "fleet_gpu_use_ratio" not in seen


def test_what_a_job_took_is_in_a_histogram_of_its_model() -> None:
    """Cumulative buckets, sum and count; lost attempts are counted."""
    fleet = _Metered(spec("one", retries=0))
    pi = fleet.host("pi").joins()
    job = pi.runs("one")
    fleet.mono_s += 45.0
    pi.reports(Failed, job, error="no memory", transient=False)
    seen = fleet.scraped()
    of = 'model="gbt",outcome="failed"'
    assert seen["fleet_job_duration_seconds_bucket"][f'{of},le="30.0"'] == 0
    assert seen["fleet_job_duration_seconds_bucket"][f'{of},le="60.0"'] == 1
    assert seen["fleet_job_duration_seconds_bucket"][f'{of},le="+Inf"'] == 1
    assert seen["fleet_job_duration_seconds_count"][of] == 1
    assert seen["fleet_job_duration_seconds_sum"][of] == pytest.approx(45.0)
    assert seen["fleet_attempts_lost_total"][""] == 0


def test_a_lost_attempt_is_counted() -> None:
    """Whose host was silent for longer than its lease."""
    fleet = _Metered(spec("one"))
    fleet.host("pi").joins().runs("one")
    fleet.passes(700.0)
    assert fleet.scraped()["fleet_attempts_lost_total"][""] == 1


def test_the_longest_wait_is_told() -> None:
    """Of the jobs that are pending now."""
    fleet = _Metered(spec("one"))
    fleet.passes(90.0)
    assert fleet.scraped()["fleet_jobs_oldest_pending_seconds"][""] == pytest.approx(90.0, abs=1)


def test_labels_are_bounded_and_escaped() -> None:
    """However many models a plan names; a name cannot break out of its quotes."""
    tally = Tally()
    fleet = _Metered(*(spec(str(number), retries=0) for number in range(2)))
    pi = fleet.host("pi").joins()
    pi.reports(Failed, pi.runs(fleet.history[-1][0]), error="x", transient=False)
    for number in range(MAX_MODELS):
        tally.durations[(f"m{number}", "failed")] = Histogram((1.0,))
    fleet.tally.durations |= tally.durations
    pi.reports(Failed, pi.runs(fleet.history[-1][0]), error="x", transient=False)
    assert len({model for model, _ in fleet.tally.durations}) <= MAX_MODELS + 2
    fleet.tally.durations[('a"b\\c\nd', OTHER)] = Histogram((1.0,))
    text = metrics.render(metrics.read(fleet.core.world, fleet.tally, NOTHING, fleet.now))
    assert 'model="a\\"b\\\\c\\nd"' in text
    _parsed(text)


def test_dropped_and_refused_messages_are_counted_by_kind() -> None:
    """As `fleet status` has them; the inbox by its lanes."""
    fleet = _Metered()
    fleet.core.world.dropped["heartbeat"] += 2
    fleet.core.world.refused["signature"] += 1
    seen = fleet.scraped(Inbox({"bulk": 7}, {"bulk": 3}, connected=False))
    assert seen["fleet_messages_dropped_total"]['kind="heartbeat"'] == 2
    assert seen["fleet_messages_refused_total"]['reason="signature"'] == 1
    assert seen["fleet_inbox_messages"]['lane="bulk"'] == 7
    assert seen["fleet_inbox_dropped_total"]['lane="bulk"'] == 3
    assert seen["fleet_broker_connected"][""] == 0


def test_names_follow_the_conventions() -> None:
    """Counters end in _total, durations in _seconds, sizes in _bytes; each is told once."""
    names = [metric.name for metric in METRICS]
    assert len(names) == len({*names})
    for metric in METRICS:
        assert metric.name.startswith("fleet_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert not re.search(r"_(ms|percent|gib|mib|minutes)", metric.name), metric.name


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    """`le` is less or equal; beyond all bounds there is +Inf."""
    histogram = Histogram(COMMIT_BOUNDS_S)
    for value in (0.0005, 0.0006, 99.0):
        histogram.observe(value)
    counts = histogram.cumulated()
    assert counts[:2] == [1, 2]
    assert counts[-1] == 3


@pytest.mark.system
def test_promtool_finds_no_fault(tmp_path: Path) -> None:
    """Names, kinds, units and help, as Prometheus' own linter wants them; and the rules."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; Debian: apt-get install prometheus")
    fleet = _Metered(spec("one", retries=0))
    pi = fleet.host("pi").joins()
    pi.reports(Failed, pi.runs("one"), error="x", transient=False)
    pi.beats(cpu_percent=1.0, load_1m=1.0, gpus=(Gpu(index=0, power_w=9, use_percent=1.0),))
    fleet.core.world.dropped["heartbeat"] += 1
    inbox = Inbox({"bulk": 0}, {"bulk": 1}, connected=True)
    text = metrics.render(metrics.read(fleet.core.world, fleet.tally, inbox, fleet.now))
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=text.encode(), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    for what, file in (("rules", "fleet.rules.yml"), ("config", "prometheus.yml")):
        checked = subprocess.run(
            [promtool, "check", what, str(ROOT / "etc/prometheus" / file)],
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_rules_and_the_page_name_metrics_that_there_are() -> None:
    """docs/metrics.md has the table of the code, and nobody is alerted by a name that is gone."""
    page = (ROOT / "docs/metrics.md").read_text("utf-8")
    assert metrics.table() in page
    known = {metric.name for metric in METRICS}
    known |= {f"{name}{end}" for name in known for end in ("_bucket", "_sum", "_count")}
    for path in ("docs/metrics.md", "etc/prometheus/fleet.rules.yml"):
        named = set(re.findall(r"\bfleet_[a-z0-9_]+", (ROOT / path).read_text("utf-8")))
        assert named <= known, path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9464", "no address"),
        ("127.0.0.1:", "no address"),
        ("127.0.0.1:99999", "no address"),
        ("0.0.0.0:9464", "metrics_plain"),
        ("pi.lan:9464", "metrics_plain"),
    ],
)
def test_an_address_that_is_none_or_open_to_all_is_refused(text: str, words: str) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigError, match=rf"^\[coordinator\] metrics: .*{words}"):
        parse_door(text, plain=False, source="[coordinator] metrics")


def test_beyond_this_machine_it_has_to_be_meant() -> None:
    """`metrics_plain` says so; this machine needs nothing."""
    assert parse_door("0.0.0.0:9464", plain=True) == Door("0.0.0.0", 9464)  # noqa: S104 - what is tested
    assert parse_door("[::1]:9464", plain=False) == Door("::1", 9464)
    assert parse_door("localhost:0", plain=False) == Door("localhost", 0)


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[], str]], int]]:
    """`serve(text)`: the port at which that is to be had."""
    made: list[Scrapes] = []

    def start(text: Callable[[], str]) -> int:
        made.append(Scrapes(Door("127.0.0.1", 0), text, metrics.CONTENT_TYPE))
        made[-1].start()
        return made[-1].port

    yield start
    for one in made:
        one.stop()


def _ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(4096):
            answer += part
        return answer


def test_the_door_answers_a_scrape_and_nothing_else(serve: Any) -> None:
    """A path, a method or a protocol that is not ours is told so."""
    port = serve(lambda: "fleet_jobs 1\n")
    answer = _ask(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"version=0.0.4" in answer
    assert answer.endswith(b"\r\n\r\nfleet_jobs 1\n")
    assert _ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
    assert b" 404 " in _ask(port, b"GET / HTTP/1.1\r\n\r\n")
    assert b" 405 " in _ask(port, b"POST /metrics HTTP/1.1\r\n\r\n")
    assert b" 400 " in _ask(port, b"\x16\x03\x01 garbage\r\n\r\n")


@pytest.mark.parametrize(
    ("host", "is_answered"),
    [
        (b"127.0.0.1:9464", True), (b"LOCALHOST:9464", True), (b"[::1]:9464", True),
        (b"192.168.1.7", True), (b"evil.example", False), (b"evil.example:9464", False),
        (b"127.0.0.1.evil.example", False), (b"[evil.example]", False), (b"", False),
        (b"localhost\r\nhOsT : evil.example", False),
    ],
)  # fmt: skip
def test_a_name_that_somebody_made_point_here_is_refused(
    serve: Any, host: bytes, *, is_answered: bool
) -> None:
    """DNS rebinding: that name's pages, in a browser of this machine, would read them."""
    asked = b"GET /metrics HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
    answer = _ask(serve(lambda: "fleet_jobs 1\n"), asked)
    assert answer.startswith(b"HTTP/1.1 200 " if is_answered else b"HTTP/1.1 403 ")
    assert (b"fleet_jobs" in answer) is is_answered


def test_a_coordinator_that_is_busy_costs_a_scrape_and_no_more(serve: Any) -> None:
    """Prometheus notes a failed scrape."""

    def busy() -> str:
        raise TimeoutError

    assert b" 503 " in _ask(serve(busy), b"GET /metrics HTTP/1.1\r\n\r\n")


def test_only_so_many_are_served_at_once(serve: Any) -> None:
    """Whoever comes beyond is closed at once, and later served again."""
    port = serve(lambda: "x 1\n")
    held = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(CONNECTIONS)]
    try:
        assert _ask_or_nothing(port) == b""
    finally:
        for one in held:
            one.close()
    done = threading.Event()
    for _ in range(200):  # their threads end as soon as they see it
        if _ask_or_nothing(port).startswith(b"HTTP/1.1 200"):
            done.set()
            break
        done.wait(0.02)
    assert done.is_set()


def _ask_or_nothing(port: int) -> bytes:
    try:
        return _ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
    except ConnectionError:
        return b""


def test_an_address_that_is_taken_is_told(serve: Any) -> None:
    """With the key to change."""
    port = serve(lambda: "")
    with pytest.raises(ConfigError, match=rf"127.0.0.1:{port}: .* \[coordinator\] metrics"):
        Scrapes(Door("127.0.0.1", port), lambda: "", "")
