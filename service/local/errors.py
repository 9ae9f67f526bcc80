"""What can go wrong while the embedded default is started, each with a sentence that says what to do."""

from __future__ import annotations


class LocalError(Exception):
    """The base of every error of `service.local`; its text is meant for a person at a terminal."""


class MissingBinaryError(LocalError):
    """A program or a wheel that ships one is not there."""


class DataInUseError(LocalError):
    """Another process of this machine already uses the data folder."""


class StartError(LocalError):
    """A process did not come up; the text ends with the tail of its log."""


class StoppedError(LocalError):
    """Somebody asked us to stop while we were starting."""
