"""Every error that runners raise on purpose: one base, and a kind that says whether to retry, record or crash.

The kind is the contract's FailureKind: TRANSIENT is tried again, PERMANENT belongs to the commit and is recorded,
BUG is ours.
"""

from __future__ import annotations

from service.contract import FailureKind


class RunnerError(Exception):
    """Base of all errors in this package; the message is a sentence a person can act on."""

    kind = FailureKind.BUG


class ChildError(RunnerError):
    """A child process could not answer; what it runs is untrusted, so this is recorded, never fatal."""

    kind = FailureKind.PERMANENT

    def __init__(self, reason: str, log_tail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_tail = log_tail


class ChildDiedError(ChildError):
    """The child ended (exit, signal, memory limit) before it answered."""


class ChildTimedOutError(ChildError):
    """The child did not answer within its time; it has been killed."""


class ChildGarbageError(ChildError):
    """The child answered something that is not one JSON object per line, or too much of it."""


class DiscoveryError(RunnerError):
    """The suite of this commit cannot be listed: a duplicate name, a missing reference, a bad axis, an import error."""

    kind = FailureKind.PERMANENT


class BuildError(RunnerError):
    """The sources of this commit do not compile."""

    kind = FailureKind.PERMANENT

    def __init__(self, reason: str, log_tail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_tail = log_tail


class DeviceError(RunnerError):
    """The device cannot be used now: absent, busy with a foreign process, or a control call hangs."""

    kind = FailureKind.TRANSIENT


class SandboxError(RunnerError):
    """A locked-in process could not be started on this machine."""

    kind = FailureKind.TRANSIENT
