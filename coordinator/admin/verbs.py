"""`fleet backup` and `fleet fsck`: care for a coordinator's state folder."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import click

from broker.errors import ConfigError, StorageError
from broker.figures import counted
from broker.system.files import FolderLock, RealDisk
from broker.wrapping import HANG
from coordinator.admin import fsck
from coordinator.admin.fsck import SETTLING_S, Finding, Folder, Report, check
from coordinator.ledger.database import back_up
from coordinator.ledger.ledger import FILE_NAME, Ledger
from coordinator.service.settings import CoordinatorSettings
from coordinator.ui.options import PATH, Where, flag, json_option, option, where
from coordinator.ui.words import answer, is_json, print_json, say

EXIT_FINDINGS: Final = 1

_state_option = option("--state", "DIR", "The coordinator's state folder.")


@click.command("backup")
@click.argument("file", metavar="FILE", type=PATH)
@json_option
@_state_option
@where("config")
def backup_command(at: Where, file: Path, state: str | None) -> None:
    """Copy the ledger to FILE, check the copy, and say what is in it.

    Runs on the coordinator's machine, while the coordinator runs or not. FILE must not exist.
    Artifacts are not in it: they never change once they are there, so copy `models/` after it.

    Example: fleet backup /backup/ledger-$(date +%F).db
    """
    target = file.absolute()
    jobs = back_up(_folder(at, state) / FILE_NAME, target)
    size_bytes = target.stat().st_size
    found = {"ok": True, "file": str(target), "jobs": jobs, "size_bytes": size_bytes}
    answer(found, f"{target}: {counted(jobs, 'job')}, {_size(size_bytes)}, checked")


@click.command("fsck")
@flag("--repair", "Repair what is safe; the coordinator must not run.")
@json_option
@_state_option
@where("config")
def fsck_command(at: Where, state: str | None, *, repair: bool) -> int:
    """Compare ledger, artifacts and logs; read every artifact.

    Runs on the coordinator's machine. Each finding is a line that says what --repair would do about
    it. No job's state is ever changed. Exit code 0: nothing is left to be done, 1: something is.

    Example: fleet fsck --repair
    """
    folder = _folder(at, state)
    lock = _lock(folder, needed=repair)
    try:
        report = _check(folder, running=lock is None)
        if repair:
            fsck.repair(RealDisk(), report.findings)
    finally:
        if lock is not None:
            lock.release()
    left = [one for one in report.findings if not repair or one.needs_a_person()]
    if is_json():
        print_json(_as_json(report, clean=not left, repaired=repair))
    else:
        _tell(folder, report, repaired=repair, running=lock is None)
    return EXIT_FINDINGS if left else 0


def _folder(at: Where, state: str | None) -> Path:
    """Return the coordinator's state folder. Raises `ConfigError` where there is no ledger."""
    folder = CoordinatorSettings.load(at.config, {"state": state}).state
    if not (folder / FILE_NAME).is_file():
        raise ConfigError(f"{folder}: no ledger is here; name the coordinator's folder by --state")
    return folder


def _lock(state: Path, *, needed: bool) -> FolderLock | None:
    """Keep coordinators away; none when one is at work and only a look was asked for."""
    try:
        return FolderLock(state, "coordinator")
    except ConfigError:
        if needed:
            raise
        return None


def _check(state: Path, *, running: bool) -> Report:
    folder = Folder(RealDisk(), state, time.time(), running)
    try:
        return check(folder, lambda: Ledger(state / FILE_NAME, copy=True))
    except StorageError as error:
        return Report(findings=[Finding("ledger", FILE_NAME, str(error))])


def _tell(state: Path, report: Report, *, repaired: bool, running: bool) -> None:
    for finding in report.findings:
        say(_line(state, finding, repaired=repaired), indent=HANG)
    settling = f"; a coordinator is at work: nothing younger than {SETTLING_S:.0f} s was judged"
    stored = counted(report.artifacts, "artifact")
    if report.checkpoints:
        stored += f", {counted(report.checkpoints, 'checkpoint')}"
    say(
        f"{counted(report.jobs, 'job')}, {stored} "
        f"({_size(report.hashed_bytes)} hashed): {counted(len(report.findings), 'finding')}"
        f"{settling if running else ''}"
    )


def _as_json(report: Report, *, clean: bool, repaired: bool) -> dict[str, object]:
    return {
        "ok": clean,
        "jobs": report.jobs,
        "artifacts": report.artifacts,
        "checkpoints": report.checkpoints,
        "hashed_bytes": report.hashed_bytes,
        "findings": [_finding(finding, repaired=repaired) for finding in report.findings],
    }


def _line(state: Path, finding: Finding, *, repaired: bool) -> str:
    where = finding.where.removeprefix(f"{state}{os.sep}")
    said = [f"{finding.kind}: {where}: {finding.what}"]
    if done := finding.repair():
        said.append(f"{'repaired:' if repaired else '--repair'} {done}")
    return "; ".join([*said, *filter(None, [finding.remedy])])


def _finding(finding: Finding, *, repaired: bool) -> dict[str, object]:
    return {
        "kind": finding.kind,
        "where": finding.where,
        "what": finding.what,
        "repair": finding.repair(),
        "repaired": repaired and finding.repair() is not None,
        "remedy": finding.remedy or None,
    }


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"
