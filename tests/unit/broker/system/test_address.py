"""Broker addresses: what is taken, what is refused and how."""

from __future__ import annotations

import pytest

from broker.errors import ConfigError
from broker.system.address import (
    DEFAULT_URL,
    Address,
    parse_address,
    parse_addresses,
    parse_listen,
    text_of,
)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://pi", Address("pi")),
        ("mqtt://pi/", Address("pi", 1883)),
        ("mqtt://192.0.2.7:8883", Address("192.0.2.7", 8883)),
        ("mqtt://[::1]:1884", Address("::1", 1884)),
        ("mqtt://ann@pi", Address("pi", user="ann")),
        ("mqtt://ann:p%40ss%2Fword@pi:1", Address("pi", 1, "ann", "p@ss/word")),
        (DEFAULT_URL, Address("127.0.0.1", 1883)),
        ("mqtts://pi", Address("pi", 8883, tls=True)),
        ("mqtts://[2001:db8::7]:8884", Address("2001:db8::7", 8884, tls=True)),
    ],
)
def test_an_address_is_taken_apart(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "the scheme is 'missing'"),
        ("mqttss://pi", "the scheme is 'mqttss'"),
        ("http://pi", "the scheme is 'http'"),
        ("mqtt://", "no host"),
        ("mqtt://:1883", "no host"),
        ("mqtt://ann@", "no host"),
        ("mqtt://pi/fleet", "something after it"),
        ("mqtt://pi?tls=1", "something after it"),
        ("mqtt://pi#top", "something after it"),
        ("mqtt://pi:0", "the port is not a number from 1 to 65535"),
        ("mqtt://pi:65536", "the port is not a number from 1 to 65535"),
        ("mqtt://pi:mqtt", "the port is not a number from 1 to 65535"),
        ("mqtt://pi:-1", "the port is not a number from 1 to 65535"),
        ("mqtt://[::1", "not an address"),
        ("mqtt://[pi]", "not an address"),
    ],
)
def test_what_is_no_address_is_refused(url: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_address(url, "fleet.toml: [broker] url")
    text = str(refusal.value)
    assert text.startswith("fleet.toml: [broker] url: ")
    assert fault in text
    assert text.endswith("mqtts://HOST:PORT, or on one machine as mqtt://127.0.0.1:1883")


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("mqtt://127.0.0.1", True), ("mqtt://127.1.2.3", True), ("mqtt://[::1]", True),
        ("mqtt://localhost", True), ("mqtt://pi", False), ("mqtt://192.0.2.7", False),
        ("mqtt://127.0.0.1.example.org", False), ("mqtt://0.0.0.0", False),
    ],
)  # fmt: skip
def test_this_machine_is_known_without_asking_anybody(url: str, here: bool) -> None:
    """A name may lead anywhere, and tomorrow elsewhere."""
    assert parse_address(url).is_loopback() is here


@pytest.mark.parametrize(
    ("urls", "addresses"),
    [
        ("mqtt://pi", [Address("pi")]),
        (
            "mqtts://a, mqtts://b:8884,mqtts://a:8883",
            [Address("a", 8883, tls=True), Address("b", 8884, tls=True)],
        ),
        (
            "mqtt://ann:a%2Cb@pi,mqtt://ann:c@pi2",
            [Address("pi", 1883, "ann", "a,b"), Address("pi2", 1883, "ann", "c")],
        ),
    ],
)
def test_a_cluster_has_several_addresses(urls: str, addresses: list[Address]) -> None:
    found = parse_addresses(urls)
    assert [*found] == addresses
    assert [*map(parse_address, text_of(found).split(","))] == [
        Address(one.host, one.port, tls=one.tls) for one in addresses
    ]


@pytest.mark.parametrize(
    ("urls", "fault"),
    [
        ("mqtts://a,b", "the scheme is missing"),
        ("mqtt://a,", "the scheme is 'missing'"),
        ("mqtts://a,mqtt://b", "all of them with mqtts://"),
        ("mqtts://ann:s3cret@a,mqtts://b", "all with a user or none"),
        (",".join(f"mqtt://n{number}" for number in range(17)), "17 addresses; name at most 16"),
    ],
)
def test_addresses_that_are_not_of_one_cluster_are_refused(urls: str, fault: str) -> None:
    """With TLS here and without there, a client would be somebody else there."""
    with pytest.raises(ConfigError) as refusal:
        parse_addresses(urls, "--broker")
    assert str(refusal.value).startswith("--broker: ")
    assert fault in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


def test_a_password_is_never_shown() -> None:
    address = parse_address("mqtt://ann:s3cret@[::1]:1884")
    assert str(address) == "mqtt://[::1]:1884"
    assert "s3cret" not in f"{address!r}"
    for url in (
        "mqtt://ann:s3cret@pi:x",
        "mqtt://ann:s3cret@",
        "http://ann:s3cret@pi",
        "ann:s3cret@pi",
    ):
        with pytest.raises(ConfigError) as refusal:
            parse_address(url)
        assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["pi", "pi:1883", "localhost:18883", "192.0.2.7", "[::1]:1883"])
def test_an_address_without_a_scheme_is_told_whole(url: str) -> None:
    with pytest.raises(ConfigError, match="the scheme is missing") as refusal:
        parse_address(url, "--broker")
    assert f"--broker: the scheme is missing; write mqtts://{url}, or" in str(refusal.value)


@pytest.mark.parametrize("text", ["", "8086", ":8086", "pi:", "pi:http", "pi:123456", "pi:65536"])
def test_where_to_listen_is_host_and_port(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--listen: .*HOST:PORT, such as 127\.0\.0\.1:8086"):
        parse_listen(text, "--listen", "127.0.0.1:8086")
    assert parse_listen("[::1]:0", "--listen", "") == ("::1", 0)
