"""The operator key: what is one, where it is read from, and that it stays there."""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ConfigError
from broker.protocol import messages as m
from broker.protocol.signing import OperatorKey, Unsigned, answered_by, check, is_answer
from broker.system.settings import BrokerSettings
from coordinator.cli import main

SECRET = "correct-horse-battery-staple-1234567"  # noqa: S105 - the tests' own


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A key as `fleet operator-key` makes one."""
    path = tmp_path / "operator.key"
    assert main(["operator-key", "-o", str(path)]) == 0
    return path


def test_a_signature_is_as_documented() -> None:
    """O4: computed by hand from docs/reference/protocol.md, so that others can sign as well."""
    key = OperatorKey(SECRET)
    mac = key.sign("fleet/operator/operator:al/cli/request", {"id": "1", "auth": 7}, 1.5)
    # printf 'fleet operator request, version 1\n{"at":1.5,"request":{"id":"1"},"topic":...}' |
    #   openssl dgst -sha256 -hmac correct-horse-battery-staple-1234567
    assert mac == "cf4e431d3bfcd729c01d78b5469e6f45280c00ef5d5dace1c3b1dd3e33ab9d7a"


def test_a_signature_of_an_answer_is_as_documented() -> None:
    """O13: computed by hand; it is no signature of a request, nor for another topic or answer."""
    key, topic = OperatorKey(SECRET), "fleet/operator/operator:al/cli/response"
    mac = key.sign_answer(topic, {"id": "1", "auth": 7}, 1.5)
    text = b'fleet operator response, version 1\n{"at":1.5,"response":{"id":"1"},"topic":"%s"}'
    assert mac == hmac.new(SECRET.encode(), text % topic.encode(), "sha256").hexdigest()
    response = m.OperatorResponse(id="1", ok=True, data="cancelled")
    signed = answered_by(key, topic, response, 1.5)
    assert is_answer(key, topic, m.encode(signed))
    assert not is_answer(OperatorKey("x" * 32), topic, m.encode(signed))
    assert not is_answer(key, topic.replace("al", "bob"), m.encode(signed))
    for changed in ({"ok": False}, {"id": "2"}, {"data": "done"}, {"auth": None}):
        assert not is_answer(key, topic, m.encode(signed.model_copy(update=changed)))
    for garbage in (b"", b"[", b"[" * 100_000, b"null", b'{"auth": {"at": 1e999, "mac": "a"}}'):
        assert not is_answer(key, topic, garbage)


def test_a_key_is_made_for_its_owner_alone(
    key_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = key_file.read_text("ascii").strip()
    assert len(secret) == 64
    if os.name == "posix":
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    other = key_file.with_name("other.key")
    assert main(["operator-key", "-o", str(other)]) == 0
    assert other.read_text("ascii") != key_file.read_text("ascii")
    assert main(["operator-key", "-o", str(key_file)]) == 1
    assert key_file.read_text("ascii").strip() == secret
    out, err = capsys.readouterr()
    assert secret not in out + err
    assert "exists already" in err


def test_the_environment_goes_before_the_file(key_file: Path) -> None:
    settings = BrokerSettings(operator_key_file=key_file)
    told = settings.operator_key({"FLEET_OPERATOR_KEY": SECRET})
    filed, none = settings.operator_key({}), BrokerSettings().operator_key({})
    assert told
    assert filed
    assert none is None
    macs = {one.sign("t", {}, 0) for one in (told, filed, OperatorKey(f"  {SECRET}\n"))}
    assert len(macs) == 2, "spaces and line ends around a key do not count"
    loaded = BrokerSettings.load(None, None, {"FLEET_OPERATOR_KEY_FILE": str(key_file)})
    assert loaded.operator_key_file == key_file


@pytest.mark.posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666, 0o610])
def test_a_key_that_others_may_read_is_refused(key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    with pytest.raises(ConfigError) as refusal:
        BrokerSettings(operator_key_file=key_file).operator_key({})
    assert f"chmod 600 {key_file}" in str(refusal.value)
    assert key_file.read_text("ascii").strip() not in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["", "\n", "short", "x" * 31, "x" * 1025, "x" * 40 + "\x00", "é" * 40]
)
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "operator.key"
    path.write_text(text, "utf-8")
    path.chmod(0o600)
    with pytest.raises(ConfigError) as refusal:
        BrokerSettings(operator_key_file=path).operator_key({})
    assert str(path) in str(refusal.value)
    assert "fleet operator-key" in str(refusal.value)
    assert "xxx" not in str(refusal.value)
    with pytest.raises(ConfigError, match=r"^FLEET_OPERATOR_KEY: ") as refusal:
        BrokerSettings().operator_key({"FLEET_OPERATOR_KEY": "too short a key"})
    assert "too short a key" not in str(refusal.value)


@pytest.mark.posix
@pytest.mark.parametrize("make", ["nothing", "folder", "pipe"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: str) -> None:
    """A named pipe would be waited on for ever."""
    path = tmp_path / "operator.key"
    if make == "folder":
        path.mkdir()
    elif make == "pipe":
        os.mkfifo(path, 0o600)
    with pytest.raises(ConfigError, match=r"operator\.key: .*operator_key_file"):
        BrokerSettings(operator_key_file=path).operator_key({})


def test_a_key_shows_itself_nowhere() -> None:
    key: Any = OperatorKey(SECRET)
    assert SECRET not in f"{key} {key!r} {[key]}"
    assert not hasattr(key, "__dict__")


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"7", b"\xff", b"{", b"[" * 100_000, b'{"auth":' * 50_000, b'{"auth":[]}',
     b'{"auth":{"at":1e999,"mac":"0"}}', b'{"auth":{"at":NaN,"mac":"0"}}',
     b'{"auth":{"at":' + b"9" * 5000 + b',"mac":"0"}}',
     b'{"x":"\\ud800","auth":{"at":0,"mac":"0"}}',
     b'{"auth":{"at":0,"mac":"\xc3\xa9"}}'],
    ids=range(13),
)  # fmt: skip
def test_garbage_is_unsigned(payload: bytes) -> None:
    with pytest.raises(Unsigned):
        check(OperatorKey(SECRET), "t", payload, 0.0, 60.0)
