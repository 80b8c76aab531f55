"""Units, scripts and the property list are what systemd, shells and launchd take."""

from __future__ import annotations

import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ETC = ROOT / "etc"
UNITS = sorted((ETC / "systemd").glob("*.service"))
MOST_EXPOSED = {"fleet-agent": 2.1, "fleet-broker": 1.3, "fleet-coordinator": 1.3}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )


def test_shellcheck_finds_nothing() -> None:
    scripts = [str(path.relative_to(ROOT)) for path in ETC.glob("*.sh")]
    done = _run(_program("shellcheck"), "-x", "--severity=style", *scripts)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = tmp_path / request.param.name
    text = request.param.read_text().replace("/opt/fleet/bin/fleet", sys.executable)
    made.write_text(text)
    return made


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem, indirect=True)
def test_systemd_takes_the_unit_and_finds_it_well_closed(unit: Path) -> None:
    """`verify` has nothing to say; `security` rates the exposure, 0 best, 10 worst."""
    analyze = _program("systemd-analyze")
    done = _run(analyze, "verify", "--man=no", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    rated = _run(analyze, "security", "--offline=true", "--no-pager", str(unit))
    score = re.search(r"exposure level for \S+: ([0-9.]+)", rated.stdout)
    assert score is not None, rated.stderr
    assert float(score[1]) <= MOST_EXPOSED[unit.stem]


def test_an_agent_has_the_time_that_it_needs_to_stop() -> None:
    """The trainer's grace, the checkpoint's handover, what is bundled and said in between."""
    from agent.core.core_settings import CoreSettings
    from agent.service.settings import AgentSettings

    text = (ETC / "systemd/fleet-agent.service").read_text()
    timeout = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert timeout is not None
    handover_s = CoreSettings.model_fields["handover_grace_s"].default
    grace_s = AgentSettings.model_fields["stop_grace_s"].default
    assert int(timeout[1]) >= handover_s + grace_s + 30


def test_an_agent_can_reach_its_gpus() -> None:
    """Each of these would close /dev/nvidia*, or forbid the code that torch makes."""
    text = (ETC / "systemd/fleet-agent.service").read_text()
    settings = [line for line in text.splitlines() if not line.startswith("#")]
    closing = ("PrivateDevices", "ProtectClock", "DeviceAllow", "DevicePolicy", "MemoryDenyWrite")
    assert not [line for line in settings if line.startswith(closing)]


def test_launchd_gets_a_property_list_that_starts_the_agent() -> None:
    """At boot, again after a failure but not after a clean end, with time to stop."""
    path = ETC / "launchd/org.training-fleet.agent.plist"
    said = plistlib.loads(path.read_bytes())
    assert said["Label"] == path.stem
    assert said["ProgramArguments"] == ["/opt/fleet/bin/fleet", "agent"]
    assert (said["RunAtLoad"], said["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert said["ExitTimeOut"] >= 100
    assert said["EnvironmentVariables"]["FLEET_CONFIG"] == "/etc/fleet/fleet.toml"


def test_the_windows_installer_is_well_formed() -> None:
    """By PowerShell's own parser where there is one; else its brackets and options at least."""
    script = ETC / "install-agent.ps1"
    text = script.read_text("utf-8")
    asked = ("From", "Broker", "Data", "HostName", "Bundle", "Root", "Uninstall", "Purge", "DryRun")
    for option in asked:
        assert re.search(rf"^\s+\[(string|switch)\]\${option}\b", text, re.MULTILINE), option
        assert re.search(rf"^\.PARAMETER {option}$", text, re.MULTILINE), option
    code = re.sub(r"(?s:<#.*?#>)|'[^'\n]*'|\"[^\"\n]*\"|#.*", "", text)
    for opening, closing in ("{}", "()", "[]"):
        assert code.count(opening) == code.count(closing), opening
    assert text.isascii()  # Windows PowerShell reads a file without a mark as the local code page
    if (pwsh := shutil.which("pwsh")) is not None:
        parse = "[void][Management.Automation.Language.Parser]::ParseFile('{}',[ref]$null,[ref]$e);"
        done = _run(pwsh, "-NoProfile", "-Command", f"$e=$null;{parse.format(script)};$e|% Message")
        assert (done.returncode, done.stdout) == (0, "")


def test_the_page_names_every_option() -> None:
    """docs/how-to/install.md is all that a user reads."""
    page = (ROOT / "docs/how-to/install.md").read_text("utf-8")
    for script in ("install-agent.sh", "install-coordinator.sh"):
        options = re.findall(r"^  (--[a-z-]+)", (ETC / script).read_text(), re.MULTILINE)
        assert options
        assert [one for one in options if f"`{one}" not in page] == []
