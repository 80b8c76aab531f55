"""Findings of `fleet doctor`: lines for people, JSON for scripts."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, TextIO

from broker.client.options import add_options
from broker.errors import is_closed_pipe
from broker.figures import counted
from broker.system.process import nobody_reads
from broker.system.settings import Settings
from broker.wrapping import json_text, laid_out

EXIT_FINE: Final = 0
EXIT_FAILS: Final = 1
EXIT_INTERRUPTED: Final = 130
INDENT: Final = 19  # as far as the words of a line


class Level(StrEnum):
    """How bad it is: `warn` costs something, `fail` keeps the program from its work.

    `skip`: it was not looked at.
    """

    OK = "ok"
    SKIP = "skip"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `remedy` is what to do about it, in the imperative."""

    check: str
    level: Level
    text: str
    remedy: str = ""

    def line(self) -> str:
        """Return it as one line without control characters."""
        said = f"{self.text}; {self.remedy}" if self.remedy else self.text
        plain = "".join(one if one.isprintable() else " " for one in said)
        return f"{self.level:<5} {self.check:<12} {plain}"


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, text)


def skip(check: str, text: str, remedy: str) -> Finding:
    """It was not looked at; `remedy` says how else one finds out."""
    return Finding(check, Level.SKIP, text, remedy)


def at_fault(faults: Iterable[str]) -> Iterator[Finding]:
    """Tell what is wrong with the settings."""
    return (fail("config", one, "etc/fleet.toml.example explains every key") for one in faults)


# What each role has checked, beside what it always can be: what was not looked at is told as well.
_WAY: Final = ("identity", "broker", "session", "rights", "coordinator")  # each rests on the last
_CHECKS: Final = {
    "agent": ("host", "state", "disk", "lock", "data", "owner", *_WAY[:3], "coordinator"),
    "coordinator": ("state", "disk", "lock", "manifest", "ca", *_WAY[:4]),
    "operator": (*_WAY[:3], "coordinator"),
}
_NO_SESSION: Final = "not tried: the broker does not let it do its work"
_WHY: Final = {
    "config": ("not looked at: the settings are at fault", "mend them first: see config"),
    "identity": ("not tried: there is no identity to connect with", "mend that first"),
    "broker": ("not tried: the broker takes no connection", "mend that first"),
    "session": (_NO_SESSION, "mend that first"),
    "rights": (_NO_SESSION, "mend that first"),
}


def complete(role: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings, and then those checks of a role that an earlier failure has prevented."""
    seen: set[str] = set()
    failed: list[str] = []
    for finding in findings:
        seen.add(finding.check)
        if finding.level is Level.FAIL and finding.check in _WHY:
            failed.append(finding.check)
        yield finding
    for check in _CHECKS[role]:
        causes = failed if check in _WAY else [one for one in failed if one == "config"]
        if check not in seen and causes:
            yield skip(check, *_WHY[causes[-1]])


def warn(check: str, text: str, remedy: str) -> Finding:
    """It works, at a price."""
    return Finding(check, Level.WARN, text, remedy)


def fail(check: str, text: str, remedy: str) -> Finding:
    """It will not work."""
    return Finding(check, Level.FAIL, text, remedy)


def summary(findings: Iterable[Finding]) -> str:
    """Return in a line how many findings are bad, and of which checks they are."""
    checks: dict[Level, dict[str, int]] = {level: Counter() for level in Level}
    for finding in findings:
        checks[finding.level][finding.check] += 1
    said = [
        f"{counted(sum(found.values()), what)}: {', '.join(found)}"
        for level, what in ((Level.FAIL, "problem"), (Level.WARN, "warning"))
        if (found := checks[level])
    ]
    said = said or ["all is well"]
    if skipped := checks[Level.SKIP]:
        said.append(f"not looked at: {', '.join(skipped)}")
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}."


def document(role: str, found: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as JSON has them."""
    is_fine = all(finding.level is not Level.FAIL for finding in found)
    checks = [asdict(finding) for finding in found]
    return {"role": role, "ok": is_fine, "checks": checks, "summary": summary(found)}


def tell(role: str, findings: Iterable[Finding], out: TextIO, *, as_json: bool) -> int:
    """Write each finding as soon as it is there, or all as JSON; return the exit code."""
    found = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            out.write(laid_out(finding.line(), out, indent=INDENT, least=2 * INDENT) + "\n")
            out.flush()
    told = document(role, found)
    text = json_text(told) if as_json else laid_out(told["summary"], out)
    out.write(f"{text}\n")
    out.flush()
    return EXIT_FINE if told["ok"] else EXIT_FAILS


def run(
    role: str,
    settings: type[Settings],
    fields: Sequence[str],
    findings: Callable[[argparse.Namespace], Iterable[Finding]],
    argv: Sequence[str] | None,
) -> int:
    """Be a role's doctor, with the options of these fields of its settings.

    A closed pipe is no fault, and Ctrl-C ends it.
    """
    parser = argparse.ArgumentParser(prog="fleet doctor", description=f"Checks of {role}.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_options(parser)
    settings.add_options(parser, *fields)
    arguments = parser.parse_args(argv)
    try:
        found = complete(role, findings(arguments))
        return tell(role, found, sys.stdout, as_json=arguments.json)
    except OSError as error:
        if not is_closed_pipe(error):
            raise
        nobody_reads()
        return EXIT_FINE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
