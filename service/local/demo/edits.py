"""Edits of a suite's files: each finds its place or fails, so that a history never silently loses a commit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from service.local.errors import LocalError


class EditError(LocalError):
    """An edit did not find what it wanted to change."""


class Edit(Protocol):
    """One change of one or more files below a folder."""

    def apply(self, root: Path) -> None:
        """Make the change, or raise EditError and leave the files alone."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace a text that stands exactly once in a file."""

    path: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Make the replacement."""
        text = _read(root, self.path)
        if text.count(self.old) != 1:
            raise EditError(f"{self.path} holds {self.old!r} {text.count(self.old)} times, not once")
        (root / self.path).write_text(text.replace(self.old, self.new))


@dataclass(frozen=True, slots=True)
class RenameWord:
    """Rename an identifier everywhere in a file."""

    path: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Rename it; the new name must not be in use."""
        text = _read(root, self.path)
        if re.search(rf"\b{self.new}\b", text):
            raise EditError(f"{self.path} already uses the name {self.new}")
        changed, count = re.subn(rf"\b{self.old}\b", self.new, text)
        if count == 0:
            raise EditError(f"{self.path} does not use the name {self.old}")
        (root / self.path).write_text(changed)


@dataclass(frozen=True, slots=True)
class SetMacro:
    """Give a C macro another number, whatever it was."""

    path: str
    name: str
    value: int

    def apply(self, root: Path) -> None:
        """Set the number."""
        text = _read(root, self.path)
        changed, count = re.subn(rf"(?m)^(#define {self.name} +)\d+", rf"\g<1>{self.value}", text)
        if count != 1:
            raise EditError(f"{self.path} defines {self.name} {count} times, not once")
        (root / self.path).write_text(changed)


@dataclass(frozen=True, slots=True)
class Append:
    """Add text at the end of a file, which is made if it is not there."""

    path: str
    text: str

    def apply(self, root: Path) -> None:
        """Add the text."""
        path = root / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as stream:
            stream.write(self.text)


@dataclass(frozen=True, slots=True)
class Move:
    """Give a file another name."""

    path: str
    to: str

    def apply(self, root: Path) -> None:
        """Move it; nothing is overwritten."""
        _read(root, self.path)
        if (root / self.to).exists():
            raise EditError(f"{self.to} is already there")
        (root / self.path).rename(root / self.to)


def _read(root: Path, path: str) -> str:
    try:
        return (root / path).read_text()
    except FileNotFoundError as error:
        raise EditError(f"there is no file {path}") from error
