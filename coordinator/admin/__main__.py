"""`fleet backup` and `fleet fsck` as a program: care for a coordinator's state folder."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from broker.errors import ConfigError, StorageError, plain
from broker.figures import counted
from broker.system.files import FolderLock, RealDisk
from broker.system.process import nobody_reads
from broker.wrapping import HANG, complain, json_text, laid_out
from coordinator.admin.fsck import SETTLING_S, Finding, Folder, Report, check, repair
from coordinator.ledger.database import back_up
from coordinator.ledger.ledger import FILE_NAME, Ledger
from coordinator.service.settings import CoordinatorSettings

EXIT_FINDINGS: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the two: `python -m coordinator.admin --help`."""
    arguments = _parser().parse_args(argv)
    try:
        settings = CoordinatorSettings.load(arguments.config, {"state": arguments.state})
        run: Callable[[Path, argparse.Namespace], int] = arguments.run
        code = run(_with_ledger(settings.state), arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        nobody_reads()
        return 0
    except (ConfigError, StorageError, OSError) as error:
        complain(plain(error))
        if arguments.json:
            _tell_as_json({"ok": False, "message": plain(error), "errors": []})
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FINDINGS
    return code


def _with_ledger(state: Path) -> Path:
    if not (state / FILE_NAME).is_file():
        raise ConfigError(f"{state}: no ledger is here; name the coordinator's folder by --state")
    return state


def _back_up(state: Path, arguments: argparse.Namespace) -> int:
    target: Path = arguments.file
    jobs = back_up(state / FILE_NAME, target)
    size_bytes = target.stat().st_size
    if arguments.json:
        found = {"file": str(target), "jobs": jobs, "size_bytes": size_bytes}
        _tell_as_json({"ok": True, **found})
    else:
        _say(f"{target}: {counted(jobs, 'job')}, {_size(size_bytes)}, checked")
    return 0


def _fsck(state: Path, arguments: argparse.Namespace) -> int:
    """Check, and repair what is safe; 0 when nothing is left to be done."""
    lock = _lock(state, needed=arguments.repair)
    try:
        report = _check(state, running=lock is None)
        if arguments.repair:
            repair(RealDisk(), report.findings)
    finally:
        if lock is not None:
            lock.release()
    left = [one for one in report.findings if not arguments.repair or one.needs_a_person()]
    if arguments.json:
        _tell_as_json(_as_json(report, clean=not left, repaired=arguments.repair))
    else:
        _tell(state, report, repaired=arguments.repair, running=lock is None)
    return EXIT_FINDINGS if left else 0


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
        _say(_line(state, finding, repaired=repaired))
    settling = f"; a coordinator is at work: nothing younger than {SETTLING_S:.0f} s was judged"
    stored = counted(report.artifacts, "artifact")
    if report.checkpoints:
        stored += f", {counted(report.checkpoints, 'checkpoint')}"
    _say(
        f"{counted(report.jobs, 'job')}, {stored} "
        f"({_size(report.hashed_bytes)} hashed): {counted(len(report.findings), 'finding')}"
        f"{settling if running else ''}"
    )


def _tell_as_json(found: dict[str, object]) -> None:
    sys.stdout.write(json_text(found, indent=2) + "\n")


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
    where = finding.where.removeprefix(f"{state}/")
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


def _say(text: str) -> None:
    sys.stdout.write(laid_out(text, sys.stdout, indent=HANG) + "\n")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m coordinator.admin", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    backup = verbs.add_parser("backup", help="copy the ledger, while a coordinator runs or not")
    backup.add_argument("file", type=Path, help="where the copy goes; must not exist")
    backup.set_defaults(run=_back_up)
    fsck = verbs.add_parser("fsck", help="compare ledger, artifacts and logs")
    fsck.add_argument("--repair", action="store_true", help="repair what is safe to repair")
    fsck.set_defaults(run=_fsck)
    for verb in (backup, fsck):
        verb.add_argument("--json", action="store_true", help="print JSON")
        verb.add_argument("--config", type=Path, help="configuration file")
        verb.add_argument("--state", type=Path, help="the coordinator's state folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
