"""What `fleet init`, `enroll` and `revoke` have done: in the CA's journal, and told.

The coordinator is told of everything that it has not been told of yet. Where it cannot be reached,
the next of these commands tells it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker.client.access import PEOPLE
from broker.errors import ConfigError, FleetError, plain
from broker.pki import ca_journal
from broker.pki import identity as ids
from broker.sentences import printable
from broker.system.address import parse_addresses, text_of
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.contact import NotDone
from coordinator.ui.ca_files import addresses_of, broker_url
from coordinator.ui.words import say

if TYPE_CHECKING:
    from broker.pki.ca import Authority

TIMEOUT_S: Final = 5.0


def doer(home: Path) -> str:
    """Return who works with the CA: the one person whose identity is here, or who is logged in."""
    try:
        found = ids.find_identity(home / "identities", frozenset(role.value for role in PEOPLE))
    except ConfigError:
        found = None  # several
    return login() if found is None else found.name.replace("@", ":")


def login() -> str:
    """Return the operator's name that goes with who is logged in."""
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        name = ""
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:40]
    return f"operator:{plain or 'owner'}"


def note(authority: Authority, home: Path, action: str, name: str, what: str = "") -> str:
    """Put an entry into the journal and return its id. Raises `ConfigError` or OSError."""
    entry = ca_journal.Entry(new_id(), system_clock().wall_s, doer(home), action, name, what[:2000])
    ca_journal.add(authority, entry)
    return entry.id


def tell(
    authority: Authority, home: Path, broker: str | None, config: Path | None
) -> dict[str, Any]:  # fmt: skip
    """Tell the coordinator what it was not told yet; return its answers by the entries' ids.

    Where that is not possible, it is said on standard error: what was done is done all the same.
    """
    untold = [one for one in ca_journal.read(authority.folder) if not one.told]
    answers: dict[str, Any] = {}
    if not untold:
        return answers
    try:
        _tell(_where(authority, home, broker, config), untold, answers)
    except (FleetError, OSError) as error:
        why = printable(plain(error)).partition("\n")[0]
        say(
            f"not recorded at the coordinator yet: {why}; the next `fleet init`, `enroll` or "
            "`revoke` here tells it, and a coordinator that was started with --ca reads it",
            err=True,
            indent=2,
        )
    if answers:
        ca_journal.mark_told(authority, answers)
    return answers


def _where(
    authority: Authority, home: Path, broker: str | None, config: Path | None
) -> BrokerSettings:
    """Return how to reach the coordinator from the CA's machine, by the identity that is there."""
    settings = BrokerSettings.load(config, {"url": broker})
    # The one that is set may be the coordinator's own, on its machine.
    found = _identity(authority, home)
    name = doer(home) if found is None else found.name.replace("@", ":")
    changed: dict[str, Any] = {} if found is None else {"identity": found}
    if "url" not in settings.model_fields_set:
        changed["url"] = broker_url(home, name)
    elif (addresses := parse_addresses(settings.url))[0].tls:
        changed["url"] = text_of(addresses_of(home, addresses, name))
    return settings.model_copy(update=changed)


def _identity(authority: Authority, home: Path) -> Path | None:
    """Return the folder of an operator's identity that holds: of several, that of who is logged in.

    Else the first: whoever has the CA may be each of them. None where there is none.
    """
    folder, now_s = home / "identities", system_clock().wall_s
    found = sorted(folder.glob("operator@*")) if folder.is_dir() else []
    holding = {
        one.name.replace("@", ":"): one
        for one in found
        if authority.holding(one.name.replace("@", ":"), now_s) is not None
    }
    return holding.get(login()) or next(iter(holding.values()), None)


def _tell(
    settings: BrokerSettings, untold: list[ca_journal.Entry], answers: dict[str, Any]
) -> None:  # fmt: skip
    from coordinator.client.client import OperatorClient

    with OperatorClient(settings, TIMEOUT_S) as client:
        for entry in untold:
            try:
                answers[entry.id] = client.ask(ca_journal.request_of(entry))
            except NotDone as refusal:
                raise NotDone(f"the coordinator refused it: {refusal}") from None
