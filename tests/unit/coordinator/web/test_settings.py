"""Where the web page may be served, and what is said where it may not."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from broker.errors import ConfigError
from coordinator.cli import main
from coordinator.web.settings import WebSettings, read_password
from tests.harness.secure import House


def test_beyond_this_machine_it_wants_tls_or_word_that_the_network_is_to_be_trusted() -> None:
    for host in ("127.0.0.1", "[::1]", "localhost"):
        WebSettings(f"{host}:0").check()
    assert WebSettings("[::1]:0").url(8086) == "http://[::1]:8086/"
    assert WebSettings("0.0.0.0:0").url(1) == "http://127.0.0.1:1/"
    with pytest.raises(ConfigError, match=r"--certificate FILE --key FILE.*ssh -L.*--plain"):
        WebSettings("0.0.0.0:0").check()
    WebSettings("192.168.1.2:0", plain=True).check()


@pytest.mark.posix  # modes are
def test_a_certificate_goes_with_its_key(tmp_path: Path) -> None:
    house = House.make(tmp_path)
    certificate, key = house.broker / "broker.crt", house.broker / "broker.key"
    WebSettings("0.0.0.0:0", certificate=certificate, key=key).check()
    with pytest.raises(ConfigError, match="go together"):
        WebSettings(certificate=certificate).check()
    with pytest.raises(ConfigError, match="no such file"):
        WebSettings(certificate=certificate, key=tmp_path / "none").check()
    other = house.identity("observer:bob", at_s=time.time()) / "client.key"
    with pytest.raises(ConfigError, match="not a certificate and its key"):
        WebSettings(certificate=certificate, key=other).check()
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        WebSettings(certificate=certificate, key=key).check()


@pytest.mark.posix  # likewise
def test_the_password_is_in_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("correct horse battery\nnot this\n", "utf-8")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_password(path)
    path.chmod(0o600)
    assert read_password(path) == "correct horse battery"
    path.write_text("short\n", "utf-8")
    with pytest.raises(ConfigError, match="12 characters"):
        read_password(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_password(tmp_path / "none")


@pytest.mark.skipif(find_spec("nicegui") is None, reason="the web page is not installed")
def test_the_verb_says_what_is_wrong_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboard", "--listen", "0.0.0.0:8086"]) == 2
    assert "--plain where the network is to be trusted" in capsys.readouterr().err
    assert main(["dashboard", "--private", "--read-only"]) == 2
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    capsys.readouterr()
    assert main(["dashboard"]) == 1
    assert "pip install '.[dashboard]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url",
    ["fleet.example", "http://fleet.example", "https://", "https://fleet.example/fleet/",
     "https://fleet.example?x", "https://a:b@fleet.example", "https://fleet.example:0x1",
     "https://fleet.example.", "https://fleet.example.:8443/"],
)  # fmt: skip
def test_a_proxy_s_address_is_that_of_a_whole_site_over_https(url: str) -> None:
    with pytest.raises(ConfigError, match="write it as https://NAME"):
        WebSettings(public_url=url).check()
    WebSettings(public_url="https://fleet.example:8443/").check()
