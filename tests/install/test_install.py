"""The installers, as people run them, into a scratch root."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.embedded import EmbeddedBroker, ServerSettings
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.pki.identity_file import Bundle
from tests.harness.inthread import InThread
from tests.harness.secure import House

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are for Linux")

Install = Callable[..., subprocess.CompletedProcess[str]]


def _tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, time of change and content's size or target of whatever is in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        changed_ns = 0 if path.is_dir() and not path.is_symlink() else about.st_mtime_ns
        what = str(path.readlink()) if path.is_symlink() else str(about.st_size)
        name = str(path.relative_to(folder))
        found[name] = (about.st_mode, changed_ns, "" if path.is_dir() else what)
    return found


@pytest.mark.slow
def test_an_agent_is_installed_once_and_removed(
    install: Install, wheel: Path, broker_url: str, data: Path, tmp_path: Path
) -> None:
    """Into a path with spaces; the second time nothing changes, and settings are never changed."""
    root = tmp_path / "a scratch root"
    options = [
        f"--root={root}", f"--from={wheel}", f"--broker={broker_url}", "--data", str(data),
        "--host=attic-pi",
    ]  # fmt: skip
    done = install("agent", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "session      a message went and came back" in done.stdout
    config = root / "etc/fleet/fleet.toml"
    said = tomllib.loads(config.read_text())
    assert said["broker"] == {"url": broker_url}
    assert said["agent"] == {"host": "attic-pi", "data": str(data)}
    unit = root / "etc/systemd/system/fleet-agent.service"
    assert "ExecStart=/opt/fleet/bin/fleet agent\n" in unit.read_text()
    assert (unit.parent / "multi-user.target.wants/fleet-agent.service").is_symlink()
    assert stat.S_IMODE((root / "var/lib/fleet").stat().st_mode) == 0o700
    assert stat.S_IMODE(config.stat().st_mode) == 0o644
    shown = subprocess.run(
        [root / "usr/local/bin/fleet", "--version"],
        capture_output=True, text=True, check=True, timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert shown.stdout.startswith("fleet, version")

    config.write_text(config.read_text() + "# mine\n")
    before = _tree(root)
    again = install("agent", *options[:3], "--host=another")
    assert again.returncode == 0, again.stdout + again.stderr
    assert _tree(root) == before
    assert "stays as it is" in again.stdout

    (root / "var/lib/fleet/result").write_text("worth keeping")
    gone = install("agent", f"--root={root}", "--uninstall")
    assert gone.returncode == 0, gone.stderr
    left = {name for name, (mode, _, _) in _tree(root).items() if not stat.S_ISDIR(mode)}
    assert left == {"etc/fleet/fleet.toml", "var/lib/fleet/result"}
    assert install("agent", f"--root={root}", "--uninstall", "--purge").returncode == 0
    assert not [name for name, (mode, _, _) in _tree(root).items() if not stat.S_ISDIR(mode)]


@pytest.mark.slow
def test_two_roles_share_a_machine(
    install: Install, wheel: Path, broker_url: str, tmp_path: Path
) -> None:
    """Removing one leaves the other whole, and a plan with a space in its path is found."""
    root, plan = tmp_path / "root", tmp_path / "my plan.toml"
    plan.write_text("schema_version = 1\n[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\n")
    where = [f"--root={root}", f"--from={wheel}", f"--broker={broker_url}"]
    done = install("coordinator", *where, "--manifest", "my plan.toml", "--with-broker")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{plan}: 1 job" in done.stdout
    assert install("agent", *where).returncode == 0
    units = root / "etc/systemd/system"
    names = ["fleet-agent.service", "fleet-broker.service", "fleet-coordinator.service"]
    assert sorted(unit.name for unit in units.glob("*.service")) == names
    assert install("coordinator", f"--root={root}", "--uninstall", "--purge").returncode == 0
    assert [unit.name for unit in units.glob("*.service")] == names[:1]
    assert (root / "opt/fleet/bin/fleet").exists()
    assert (root / "etc/fleet/fleet.toml").exists()


def test_a_dry_run_changes_nothing(install: Install, wheel: Path, tmp_path: Path) -> None:
    """It says each thing that it would do."""
    root = tmp_path / "root"
    before = _tree(tmp_path)
    done = install("agent", f"--root={root}", f"--from={wheel}", "--dry-run", "--bundle=/dev/null")
    assert done.returncode == 0, done.stderr
    assert _tree(tmp_path) == before
    for said in ("would run:", "would write", "would join", "would check", "-m pip install"):
        assert said in done.stdout
    gone = install("agent", f"--root={root}", "--uninstall", "--purge", "--dry-run")
    assert (gone.returncode, _tree(tmp_path)) == (0, before)


def test_what_fails_is_not_started(install: Install, wheel: Path, tmp_path: Path) -> None:
    """No broker: told in a line, and not enabled, unless it is forced.

    A password in the address is not shown, and not everybody may read the settings then.
    """
    broker = "--broker=mqtt://ann:hunter22@127.0.0.1:1"
    where = [f"--root={tmp_path / 'root'}", f"--from={wheel}", broker]
    done = install("coordinator", *where)
    assert done.returncode == 1
    assert "hunter22" not in done.stdout + done.stderr
    assert stat.S_IMODE((tmp_path / "root/etc/fleet/fleet.toml").stat().st_mode) == 0o640
    assert "fail  broker" in done.stdout
    assert "not started" in done.stderr
    wants = tmp_path / "root/etc/systemd/system/multi-user.target.wants"
    assert not wants.exists()
    assert install("coordinator", *where, "--force").returncode == 0
    assert [one.name for one in wants.iterdir()] == ["fleet-coordinator.service"]


def test_a_bundle_that_nobody_takes_is_an_error_and_is_not_left_behind(
    install: Install, wheel: Path, broker_url: str, tmp_path: Path
) -> None:
    bundle, root = tmp_path / "host.fleet", tmp_path / "root"
    bundle.write_text("no identity")
    done = install(
        "agent", f"--root={root}", f"--from={wheel}", f"--broker={broker_url}",
        "--bundle", str(bundle),
    )  # fmt: skip
    assert done.returncode == 1
    assert "fleet join" in done.stderr
    assert bundle.read_text() == "no identity"
    assert not (root / "var/lib/fleet/.joining").exists()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--colour=blue"], 2, "--colour: unknown"),
        (["--broker"], 2, "its value is missing"),
        (["--purge"], 2, "--purge: only with --uninstall"),
        (['--host=a"b'], 2, "--host: a quote"),
        (["--manifest=plan.toml"], 2, "not the agent's"),
        (["--data=/home/ann/telemetry"], 1, "a service cannot look into homes"),
        (["--from=/no/such/place"], 1, "--from /no/such/place: is not there"),
        (["--python=/bin/false"], 1, "is not Python 3.11 or newer"),
    ],
)
def test_wrong_usage_is_told_and_changes_nothing(
    options: list[str], code: int, said: str, install: Install, tmp_path: Path
) -> None:
    command = ["/bin/sh", str(Path(__file__).parents[2] / "etc/install-agent.sh")]
    done = subprocess.run(
        [*command, f"--root={tmp_path / 'root'}", *options],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "root/opt/fleet").exists()


@pytest.mark.slow
def test_a_bundle_makes_the_agent_somebody(
    install: Install, wheel: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fleet join` puts the identity where the service looks for it, whatever this shell has set.

    A second run of the same command changes nothing, also after the certificate was renewed.
    """
    house = House.make(tmp_path / "house")
    broker = InThread(
        lambda: EmbeddedBroker(ServerSettings(port=0, identity=tmp_path / "house" / "broker"))
    )
    try:
        url = f"mqtts://127.0.0.1:{broker.port}"
        key = certs.new_key()
        made = house.authority.issue(key.public_key(), "attic", time.time())
        bundle = tmp_path / "attic.fleet"
        keyfiles.write(
            bundle, Bundle("attic", url, house.authority.pem, made, certs.key_pem(key)).encode()
        )
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
        root = tmp_path / "root"
        options = [f"--root={root}", f"--from={wheel}", f"--broker={url}", "--data", str(data)]
        done = install("agent", *options, "--bundle", str(bundle))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "session      a message went and came back" in done.stdout
        identity = root / "var/lib/fleet/.config/fleet/identities/attic"
        assert stat.S_IMODE((identity / "client.key").stat().st_mode) == 0o600
        assert not (tmp_path / "elsewhere").exists()
        unit = (root / "etc/systemd/system/fleet-agent.service").read_text()
        assert "HOME=/var/lib/fleet\n" in unit
        assert "XDG_CONFIG_HOME" not in unit

        request = certs.request_pem(key, "attic")
        renewed = house.authority.renew(request, "attic", time.time())
        ids.write_identity(identity, house.authority.pem, renewed, certs.key_pem(key))
        before = _tree(root)
        again = install("agent", *options, "--bundle", str(bundle))
        assert again.returncode == 0, again.stdout + again.stderr
        assert _tree(root) == before
    finally:
        broker.stop()
