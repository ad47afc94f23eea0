"""The closed sets of words that stand in journals: effects, outcomes, who settled a call, why a run was interrupted."""

from enum import StrEnum


class Effect(StrEnum):
    """What a tool call can do to the world."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    WRITE = "write"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """How a tool call ended.

    `interrupted`, `timeout` and `cancelled` after the hand-over mean that it is unknown whether the call took effect;
    `not_started` and `denied` mean that it did not.
    """

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not_started"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    ORPHANED = "orphaned"


class SettledBy(StrEnum):
    """Whose word a call's result is."""

    TOOL = "tool"
    RECOVERY = "recovery"
    HUMAN = "human"
    POLICY = "policy"


class Cause(StrEnum):
    """Why a run had to be revived."""

    CRASH = "crash"
    REBOOT = "reboot"
    RESTART = "restart"
    MANUAL = "manual"


class Source(StrEnum):
    """Where a message comes from."""

    HUMAN = "human"
    SYSTEM = "system"
    REVIVAL = "revival"
    CHILD = "child"
    WEBHOOK = "webhook"


class Needs(StrEnum):
    """What a parked run waits for from its environment."""

    KEY = "key"
    DISK = "disk"
    WORKSPACE = "workspace"
    NETWORK = "network"
    PROVIDER = "provider"
    BUDGET = "budget"
    HUMAN = "human"
    """Somebody who says something to it, or changes something, and resumes it."""
    NEWER_VERSION = "newer"
    DECISION = "damaged"
