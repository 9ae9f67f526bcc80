"""Where a culprit comes from: its owners by CODEOWNERS, and the ranges that a bump of a dependency brought in.

Pure over texts that git gave. CODEOWNERS: the last matching line decides; patterns are those of gitignore, of which
this understands `*`, `**`, `?`, a leading and a trailing slash (GitHub, "About code owners"). A bump is a submodule
whose commit moved, or a requirement pinned to a commit (`name @ git+URL@SHA`, pip's direct references).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_SUBMODULE = re.compile(r"^([-+])Subproject commit ([0-9a-f]{40,64})")
_PINNED = re.compile(r"^([-+]).*?git\+(\S+?)@([0-9a-f]{7,64})\b")
_HEADER = re.compile(r"^diff --git a/(\S+) b/\S+")


@dataclass(frozen=True, slots=True)
class Bump:
    """A dependency that moved from one commit to another; `place` is the submodule's path or the repository's URL."""

    place: str
    before: str
    after: str


def owners_of(codeowners: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the owners of these paths, each once, in the order in which the paths name them."""
    rules = [words for line in codeowners.splitlines() if (words := line.partition("#")[0].split())]
    found: dict[str, None] = {}
    for path in paths:
        owners: Sequence[str] = ()
        for pattern, *names in rules:
            if pattern_of(pattern).fullmatch(path):
                owners = names
        found.update(dict.fromkeys(owners))
    return tuple(found)


def pattern_of(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a CODEOWNERS pattern, over whole paths without a leading slash."""
    anchored = "/" in pattern.rstrip("/")
    body = pattern.strip("/")
    tokens = re.findall(r"\*\*/?|\*|\?|[^*?]+", body)
    parts = [_WILD.get(token) or re.escape(token) for token in tokens]
    below = "/.*" if pattern.endswith("/") else "(?:/.*)?" if not pattern.endswith("/*") else ""
    return re.compile(("" if anchored else "(?:.*/)?") + "".join(parts) + below)


def bumps_in(diff: str) -> tuple[Bump, ...]:
    """Return the dependencies whose commit a diff moves."""
    found: list[Bump] = []
    old: dict[str, str] = {}
    path = ""
    for line in diff.splitlines():
        if header := _HEADER.match(line):
            path = header.group(1)
            continue
        if moved := _SUBMODULE.match(line):
            sign, place, sha = moved.group(1), path, moved.group(2)
        elif moved := _PINNED.match(line):
            sign, place, sha = moved.group(1), moved.group(2), moved.group(3)
        else:
            continue
        if sign == "-":
            old[place] = sha
        elif place in old and old[place] != sha:
            found.append(Bump(place, old[place], sha))
    return tuple(found)


def submodule_urls(gitmodules: str) -> dict[str, str]:
    """Return the URL of each submodule by its path."""
    urls: dict[str, str] = {}
    path = ""
    for line in gitmodules.splitlines():
        key, _, value = (part.strip() for part in line.partition("="))
        if line.lstrip().startswith("["):
            path = ""
        elif key == "path":
            path = value
        elif key == "url" and path:
            urls[path] = value
    return urls


def same_repository(one: str, other: str) -> bool:
    """Whether two clone URLs name the same repository, whatever the protocol and the ending."""

    def plain(url: str) -> str:
        host_and_path = re.sub(r"^(?:\w+://)?(?:[^@/]+@)?", "", url).replace(":", "/", 1)
        return host_and_path.removesuffix("/").removesuffix(".git").lower()

    return plain(one) == plain(other)
