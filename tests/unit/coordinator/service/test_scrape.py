"""The port at which Prometheus asks."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily

from broker.errors import ConfigError
from coordinator.service.scrape import Readings, Scrapes, parse_address

GET = b"GET /metrics HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("9464", "no address"),
        ("127.0.0.1:", "no address"),
        ("127.0.0.1:99999", "no address"),
        ("0.0.0.0:9464", "metrics_plain"),
        ("pi.lan:9464", "metrics_plain"),
    ],
)
def test_an_address_that_is_none_or_open_to_all_is_refused(text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\[coordinator\] metrics: .*{word}"):
        parse_address(text, plain=False)


def test_an_address_beyond_this_machine_needs_metrics_plain() -> None:
    assert parse_address("0.0.0.0:9464", plain=True) == ("0.0.0.0", 9464)  # noqa: S104 - what is tested
    assert parse_address("[::1]:9464", plain=False) == ("::1", 9464)
    assert parse_address("localhost:0", plain=False) == ("localhost", 0)


@pytest.fixture
def serve() -> Iterator[Callable[..., int]]:
    """`serve(answer)`: the port of a server that has `answer` give the readings."""
    made: list[Scrapes] = []

    def start(answer: Callable[[Future[Readings]], object] = _at_once) -> int:
        made.append(Scrapes(("127.0.0.1", 0), answer))
        made[-1].start()
        return made[-1].port

    yield start
    for one in made:
        one.stop()


def _at_once(readings: Future[Readings]) -> None:
    readings.set_result([GaugeMetricFamily("fleet_x", "A figure.", value=1)])


def _busy(readings: Future[Readings]) -> None:
    readings.set_exception(TimeoutError())


def _ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(4096):
            answer += part
        return answer


def test_metrics_are_at_one_path(serve: Any) -> None:
    """In Prometheus' text format; nothing else is answered."""
    port = serve()
    answer = _ask(port, GET + b"Host: localhost\r\n\r\n")
    assert b" 200 OK\r\n" in answer
    assert b"version=0.0.4" in answer
    assert answer.endswith(b"\nfleet_x 1.0\n")
    assert b" 404 " in _ask(port, b"GET / HTTP/1.1\r\n\r\n")
    assert b" 405 " in _ask(port, b"POST /metrics HTTP/1.1\r\n\r\n")
    assert b"fleet_x" not in _ask(port, b"\x16\x03\x01 garbage\r\n\r\n")


@pytest.mark.parametrize(
    ("host", "is_answered"),
    [
        (b"127.0.0.1:9464", True), (b"LOCALHOST:9464", True), (b"[::1]:9464", True),
        (b"192.168.1.7", True), (b"evil.example", False), (b"evil.example:9464", False),
        (b"127.0.0.1.evil.example", False), (b"[evil.example]", False), (b"", False),
        (b"localhost\r\nhost: evil.example", False),
    ],
)  # fmt: skip
def test_a_foreign_name_in_the_host_header_is_refused(
    serve: Any, host: bytes, *, is_answered: bool
) -> None:
    """DNS rebinding: that name's pages, in a browser of this machine, would read them."""
    answer = _ask(serve(), GET + b"Host: " + host + b"\r\n\r\n")
    assert (b" 200 " in answer) is (b"fleet_x" in answer) is is_answered
    assert (b" 403 " in answer) is not is_answered


def test_a_busy_coordinator_answers_503(serve: Any) -> None:
    assert b" 503 " in _ask(serve(_busy), GET + b"\r\n")


@pytest.mark.slow
def test_a_client_that_falls_silent_is_cut_off(
    serve: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a word; others are answered meanwhile."""
    port = serve()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(GET[:9])
        assert b" 200 " in _ask(port, GET + b"\r\n")
        assert connection.recv(100) == b""
    assert capfd.readouterr().err == ""


def test_an_address_that_is_taken_is_told(serve: Any) -> None:
    port = serve()
    with pytest.raises(ConfigError, match=rf"127.0.0.1:{port}: .* \[coordinator\] metrics"):
        Scrapes(("127.0.0.1", port), _at_once)
