"""Every payload on the wire but the raw ones (log lines and chunks), as pydantic models.

Going out, a message bears exactly its fields. Coming in, unknown fields are tolerated, so that an
old agent and a new coordinator work together; everything else that does not fit raises
`BadMessage`.

A model takes a millisecond and 50 KiB, and no program needs all of them: the module of a name is
loaded when the name is first asked for (PEP 562), and a model is built when it is first used.
"""

# mypy: implicit-reexport
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from broker.protocol.messages.artifacts import (
        GRANT,
        OFFER,
        Grant,
        GrantMessage,
        Offer,
        Rejected,
        Stored,
    )
    from broker.protocol.messages.codec import decode, encode
    from broker.protocol.messages.fleet import (
        BROKER_LOAD,
        BROKER_REFUSED,
        HOLDER,
        JOB_ROW,
        MAX_PLAN_NAME,
        SUMMARY,
        BrokerLoad,
        BrokerRefusals,
        Holder,
        JobRow,
        NoRoom,
        Summary,
        WaitsFor,
    )
    from broker.protocol.messages.homeassistant import (
        HOME_COMMAND,
        HOME_EVENT,
        HOME_STATE,
        HomeCommand,
        HomeEvent,
        HomeFleet,
        HomeHost,
        HomeJob,
    )
    from broker.protocol.messages.hosts import (
        CAPABILITY,
        CERTIFICATE_REQUEST,
        CERTIFICATE_RESPONSE,
        HEARTBEAT,
        LONGEST_S,
        PROGRESS,
        STATUS,
        Capability,
        CertificateRequest,
        CertificateResponse,
        Gpu,
        Heartbeat,
        HeldJob,
        OwedResult,
        Phase,
        Progress,
        Status,
        TrainerInfo,
    )
    from broker.protocol.messages.jobs import (
        AGENT_REQUEST,
        AGENT_RESPONSE,
        Accepted,
        AgentRequest,
        AgentResponse,
        Assign,
        Cancel,
        Checkpoint,
        Failed,
        Finished,
        HostRules,
        Lease,
        LeasedJob,
        Noted,
        Rebirth,
        Refused,
        Release,
        Released,
        Rules,
        Started,
        Stopped,
    )
    from broker.protocol.messages.needs import Needs
    from broker.protocol.messages.operators import (
        CURVES_AT_ONCE,
        MAX_JOBS,
        OPERATOR_REQUEST,
        OPERATOR_RESPONSE,
        Ask,
        AskAttempts,
        AskCancel,
        AskCurves,
        AskDrain,
        AskEach,
        AskEvents,
        AskFetch,
        AskForget,
        AskIdentity,
        AskList,
        AskLogs,
        AskPause,
        AskPlan,
        AskReload,
        AskRequeue,
        AskResume,
        AskRun,
        AskShow,
        AskSnooze,
        AskStatus,
        AskTrainers,
        AskWhy,
        AskWorkers,
        Auth,
        Command,
        OperatorRequest,
        OperatorResponse,
    )
    from broker.protocol.messages.values import (
        MAX_CHUNK_BYTES,
        MAX_LISTED,
        MAX_PAYLOAD_BYTES,
        MAX_SMALL_BYTES,
        VERSION,
        ArtifactId,
        Attempt,
        Bytes,
        HostName,
        Hyper,
        Id,
        JobId,
        JobStateName,
        Line,
        Metrics,
        Mode,
        Pem,
        Piece,
        Receipt,
        Seq,
        Share,
        SplitRecipe,
        Text,
        Wire,
        Word,
    )
else:
    # Not for a type checker, to which a name that is none of these would be anything.

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted(_MODULES)


_NAMES: Final = {
    "artifacts": (
        "GRANT", "OFFER", "Grant", "GrantMessage", "Offer", "Rejected", "Stored",
    ),
    "codec": (
        "decode", "encode",
    ),
    "fleet": (
        "BROKER_LOAD", "BROKER_REFUSED", "BrokerLoad", "BrokerRefusals", "HOLDER", "Holder",
        "JOB_ROW", "JobRow", "MAX_PLAN_NAME", "NoRoom", "SUMMARY", "Summary", "WaitsFor",
    ),
    "homeassistant": (
        "HOME_COMMAND", "HOME_EVENT", "HOME_STATE", "HomeCommand", "HomeEvent", "HomeFleet",
        "HomeHost", "HomeJob",
    ),
    "hosts": (
        "CAPABILITY", "CERTIFICATE_REQUEST", "CERTIFICATE_RESPONSE", "HEARTBEAT", "LONGEST_S",
        "PROGRESS", "STATUS", "Capability", "CertificateRequest", "CertificateResponse", "Gpu",
        "Heartbeat", "HeldJob", "OwedResult", "Phase", "Progress", "Status", "TrainerInfo",
    ),
    "jobs": (
        "AGENT_REQUEST", "AGENT_RESPONSE", "Accepted", "AgentRequest", "AgentResponse", "Assign",
        "Cancel", "Checkpoint", "Failed", "Finished", "HostRules", "Lease", "LeasedJob", "Noted",
        "Rebirth", "Refused", "Release", "Released", "Rules", "Started", "Stopped",
    ),
    "needs": ("Needs",),
    "operators": (
        "CURVES_AT_ONCE", "MAX_JOBS", "OPERATOR_REQUEST", "OPERATOR_RESPONSE", "Ask",
        "AskAttempts", "AskCancel", "AskCurves", "AskDrain", "AskEach", "AskEvents", "AskFetch",
        "AskForget", "AskIdentity", "AskList", "AskLogs", "AskPause", "AskPlan", "AskReload",
        "AskRequeue", "AskResume", "AskRun", "AskShow", "AskSnooze", "AskStatus", "AskTrainers",
        "AskWhy", "AskWorkers", "Auth", "Command", "OperatorRequest", "OperatorResponse",
    ),
    "values": (
        "MAX_CHUNK_BYTES", "MAX_LISTED", "MAX_PAYLOAD_BYTES", "MAX_SMALL_BYTES", "VERSION",
        "ArtifactId", "Attempt", "Bytes", "HostName", "Hyper", "Id", "JobId", "JobStateName",
        "Line", "Metrics", "Mode", "Pem", "Piece", "Receipt", "Seq", "Share", "SplitRecipe",
        "Text", "Wire", "Word",
    ),
}  # fmt: skip
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names}
