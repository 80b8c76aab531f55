"""`[programs]`: which programs the owner of this host lets in, and how they run."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from agent.programs import sandbox
from agent.programs.environments import find_uv
from broker.protocol.acl import fault_of
from broker.protocol.messages import ProgramsAllowed
from broker.protocol.topics import is_user
from broker.system.settings import Settings

_PINNED: Final = re.compile(r"(?:sha256:|[^:@]+@)([0-9a-f]{64})")


def _digest(text: str) -> str:
    found = _PINNED.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r}: write sha256:DIGEST, or NAME@DIGEST as `fleet push` prints it")
    return found[1]


def _operator(name: str) -> str:
    if not is_user(f"operator:{name}"):
        raise ValueError(f"{name!r} is no operator's name: {fault_of(f'operator:{name}')}")
    return name


UNCHECKED: Final = "signed_by lets nothing in: without a certificate no signature can be checked"
UNSIGNED: Final = "FLEET_UNSIGNED_PROGRAMS"  # `fleet up` says so to the agents that it starts


class ProgramSettings(Settings):
    """The section of the configuration file; without `pinned` and `signed_by` nothing is let in."""

    section: ClassVar[str] = "programs"
    environment_names: ClassVar[Mapping[str, str]] = {UNSIGNED: "unsigned"}
    options: ClassVar[Mapping[str, str]] = {}

    unsigned: bool = Field(
        default=False,
        description="Any parcel that nobody signed: for a machine whose user alone gives orders.",
    )
    sandbox: Literal["bwrap", "none"] | None = Field(
        default=None, description="bwrap where bubblewrap works, if unset; none: no sandbox."
    )
    pinned: tuple[Annotated[str, AfterValidator(_digest)], ...] = Field(
        default=(), max_length=1000, description="These parcels only: NAME@DIGEST or sha256:DIGEST."
    )
    signed_by: tuple[Annotated[str, AfterValidator(_operator)], ...] = Field(
        default=(), max_length=100, description="Any parcel that one of these operators signed."
    )
    network: bool = Field(default=False, description="Whether a program may use the network.")
    cache_gib: float = Field(
        default=50.0, gt=0, le=1e6,
        description="Disk for parcels, environments, datasets and inputs each.",
    )  # fmt: skip

    @field_validator("sandbox")
    @classmethod
    def _works(cls, wanted: str | None) -> str | None:
        if wanted == "bwrap" and not sandbox.works():
            raise ValueError(f"bubblewrap does not work here: {sandbox.REMEDY}")
        return wanted

    @field_validator("pinned", "signed_by")
    @classmethod
    def _is_safe(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Refuse to run programs of others without a sandbox, unless the owner says so."""
        is_signed = info.field_name == "signed_by"
        if names and is_signed and sys.platform != "linux":
            raise ValueError("this system has no sandbox; pin each parcel instead")
        # A wrong `sandbox` is no field here, and has been told.
        untold = info.data.get("sandbox", "none") is None
        # A pinned one may run where there is no bubblewrap, but not where that is broken.
        if names and untold and (is_signed or sandbox.is_installed()) and not sandbox.works():
            raise ValueError(
                f'needs a sandbox: {sandbox.REMEDY}; or write sandbox = "none" if these programs '
                "may do here whatever the agent may"
            )
        return names

    def cache_bytes(self) -> float:
        """Return how much of each kind may be kept: parcels, environments, datasets, inputs."""
        return self.cache_gib * 1024**3

    def uses_sandbox(self) -> bool:
        """Whether programs run in bubblewrap."""
        return self.sandbox != "none" and self._lets_in() and sandbox.works()

    def allowed(self) -> ProgramsAllowed | None:
        """Return what the capability tells of it; none: nothing is let in."""
        if not self._lets_in():
            return None
        how = "bwrap" if self.uses_sandbox() else "none"
        kinds = ("none",) if find_uv() is None else ("none", "uv")
        return ProgramsAllowed(
            pinned=self.pinned, signed_by=self.signed_by, unsigned=self.unsigned,
            environments=kinds, sandbox=how,
        )  # fmt: skip

    def _lets_in(self) -> bool:
        return bool(self.pinned or self.signed_by or self.unsigned)
