"""An identity as one file: what is taken from it, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ConfigError
from broker.pki import certificates as certs
from broker.pki.ca import Authority
from broker.pki.identity import DAY_S, load_identity
from broker.pki.identity_file import Bundle, check_place, install, parse_bundle, read_bundle

URL = "mqtts://pi.lan:8883"
ID = "gpu"


def _bundle(authority: Authority, name: str = ID, **more: Any) -> dict[str, Any]:
    key = certs.new_key()
    made = authority.issue(key.public_key(), name, time.time(), replace=True, **more)
    return dict(json.loads(Bundle(name, URL, authority.pem, made, certs.key_pem(key)).encode()))


def test_a_file_carries_all_that_a_host_needs(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "gpu.fleet"
    path.write_text(json.dumps(_bundle(authority)))
    bundle = read_bundle(path, time.time())
    assert install(bundle, tmp_path / "x" / "gpu")
    assert load_identity(tmp_path / "x" / "gpu", time.time()).name == ID
    assert not install(bundle, tmp_path / "x" / "gpu")
    assert "PRIVATE" not in repr(bundle)


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/fleet", "..", ".", "", "a/b", "a\\b", "C:x", "nul", "gpu\x00", "gpu/", "~",
     "pi"],
)  # fmt: skip
def test_a_file_cannot_choose_where_it_goes(authority: Authority, name: str) -> None:
    document = _bundle(authority) | {"name": name}
    with pytest.raises(ConfigError, match="f: name: "):
        parse_bundle(json.dumps(document).encode(), "f", time.time())


def test_keys_that_nobody_asked_for_write_nothing(authority: Authority, tmp_path: Path) -> None:
    document = _bundle(authority) | {"../../evil": "x", "files": {"../evil": "x"}, "out": "/evil"}
    document["certificate"] += "evil\n" * 10
    bundle = parse_bundle(json.dumps(document).encode(), "f", time.time())
    install(bundle, tmp_path / "gpu")
    assert {path.name for path in (tmp_path / "gpu").iterdir()} == {
        "broker.url", "ca.crt", "client.crt", "client.key",
    }  # fmt: skip
    assert b"evil\nevil" not in (tmp_path / "gpu" / "client.crt").read_bytes()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"v": 2}, "another version of the fleet"),
        ({"key": 7}, "is not a file of `fleet enroll`"),
        ({"key": "x"}, "f: key: is not a private key"),
        ({"ca": "x"}, "f: ca: is not a certificate"),
        ({"certificate": "x"}, "f: certificate: is not a certificate"),
        ({"broker": "mqtt://pi"}, "f: broker: is not an address with TLS"),
        ({"broker": "evil; rm -rf /"}, "f: broker: the scheme is"),
        ({"broker": "mqtts://pi/$(rm)"}, "f: broker: no host, or something after it"),
    ],
)
def test_a_file_that_is_wrong_says_what(
    authority: Authority, change: dict[str, Any], told: str
) -> None:
    document = _bundle(authority) | change
    with pytest.raises(ConfigError) as refusal:
        parse_bundle(json.dumps(document).encode(), "f", time.time())
    assert told in str(refusal.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 30000, b"x" * 70_000])
def test_a_file_that_is_none_is_told(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"f: (is not a file of|is larger than)"):
        read_bundle(path, time.time())


def test_parts_of_different_identities_are_told(authority: Authority, tmp_path: Path) -> None:
    one, two = _bundle(authority), _bundle(authority, "pi")
    other = _bundle(Authority.create(tmp_path / "other", time.time()))
    now_s = time.time()
    for mixed, told in (
        (one | {"key": two["key"]}, "the key does not belong"),
        (one | {"certificate": two["certificate"], "key": two["key"]}, "somebody else's"),
        (one | {"ca": other["ca"]}, "not of this CA"),
    ):
        with pytest.raises(ConfigError, match=told):
            parse_bundle(json.dumps(mixed).encode(), "f", now_s)
    with pytest.raises(ConfigError, match="the certificate ended on"):
        parse_bundle(json.dumps(one).encode(), "f", now_s + 400 * DAY_S)


def test_another_identity_is_not_overwritten_by_accident(
    authority: Authority, tmp_path: Path
) -> None:
    now_s = time.time()
    first = parse_bundle(json.dumps(_bundle(authority)).encode(), "f", now_s)
    second = parse_bundle(json.dumps(_bundle(authority)).encode(), "f", now_s)
    install(first, tmp_path / "gpu")
    with pytest.raises(ConfigError, match="another identity is there; take --replace"):
        install(second, tmp_path / "gpu")
    assert (tmp_path / "gpu" / "client.crt").read_bytes() == first.certificate
    assert install(second, tmp_path / "gpu", replace=True)
    assert (tmp_path / "gpu" / "client.crt").read_bytes() == second.certificate


def test_an_identity_that_was_renewed_is_the_same_one(authority: Authority, tmp_path: Path) -> None:
    now_s = time.time()
    first = parse_bundle(json.dumps(_bundle(authority)).encode(), "f", now_s)
    install(first, tmp_path / "gpu")
    key = certs.parse_key(first.key, "k")
    renewed = authority.renew(certs.request_pem(key, "gpu"), first.name, now_s)
    (tmp_path / "gpu" / "client.crt").write_bytes(renewed)
    assert not install(first, tmp_path / "gpu")
    assert (tmp_path / "gpu" / "client.crt").read_bytes() == renewed


def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"no identity can be put there: .*file.*; name another"):
        check_place(tmp_path / "file" / ID)
    check_place(tmp_path / "new" / ID)
    assert list((tmp_path / "new").iterdir()) == []
