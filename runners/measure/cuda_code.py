"""The machine code of CUDA sources, compiled apart from the commit's own code and kept by content.

A commit's process only says which files an implementation is made of. The runner reads them itself (nothing outside
the suite, no links) and has them compiled by a locked-in process that holds none of the commit's Python, so what is
kept under a source's hash is what the compiler made of that source, whoever asks: no commit can write another's facts.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runners.device.cuda.nvrtc import TARGETS, toolchain_version, unavailable
from runners.errors import ChildError
from runners.measure.team import ChildHandle

FACTS_VERSION = 1  # of what is read from the machine code; another version compiles anew
COMPILE_TIMEOUT_S = 120.0
BUDGET_S = 60.0  # of compiling for one run; what is left over waits for the next commit
SOURCE_BYTES_MAX = 4 << 20
Facts = dict[str, float | str]


class CudaCode:
    """Answers with the facts of a source on every architecture, from the cache or from the compiler."""

    def __init__(
        self,
        *,
        cache_dir: Path,
        spawn: Callable[[], ChildHandle],
        clock: Callable[[], float],
        budget_s: float = BUDGET_S,
        missing: str | None = None,
    ) -> None:
        self._cache_dir = cache_dir
        self._spawn = spawn
        self._clock = clock
        self._left_s = budget_s
        self.missing = missing or unavailable()  # why nothing can be compiled here
        self._child: ChildHandle | None = None

    def close(self) -> None:
        """End the compiler's process."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def facts_of(self, suite_dir: Path, sources: tuple[str, ...], flags: tuple[str, ...]) -> Facts:
        """Facts of the files (relative to the suite, joined in order), or `static_missing` with the reason."""
        if self.missing is not None:
            return {"static_missing": self.missing}
        text = _read(suite_dir, sources)
        if text is None:
            return {"static_missing": f"{', '.join(sources)} cannot be read inside the suite"}
        kept = self._cache_dir / f"{self._key(text, flags)}.json"
        if kept.is_file():
            found: Facts = json.loads(kept.read_text(encoding="utf-8"))
            return found
        if self._left_s <= 0:
            return {"static_missing": "the time for compiling CUDA sources ran out; the next commit goes on"}
        return self._compile(text, flags, kept)

    def _compile(self, text: str, flags: tuple[str, ...], kept: Path) -> Facts:
        begun_s = self._clock()
        try:
            if self._child is None:
                self._child = self._spawn()
            message = {"op": "compile", "source": text, "flags": list(flags)}
            reply = self._child.request(message, timeout_s=min(COMPILE_TIMEOUT_S, self._left_s))
            found = _believable(reply.get("facts"))
        except ChildError as error:
            self.close()
            return {"static_missing": f"the compiler's process: {error.reason}"}
        finally:
            self._left_s -= self._clock() - begun_s
        if found is None:
            return {"static_missing": str(reply.get("error", "the compiler answered with something else than facts"))}
        self._keep(kept, found)
        return found

    def _key(self, text: str, flags: tuple[str, ...]) -> str:
        digest = hashlib.sha256()
        for part in (str(FACTS_VERSION), toolchain_version(), *TARGETS, *flags, text):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()[:32]

    def _keep(self, kept: Path, found: Facts) -> None:
        self._cache_dir.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._cache_dir, prefix=".facts-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(found, file)
        Path(name).replace(kept)


def _read(suite_dir: Path, sources: tuple[str, ...]) -> str | None:
    """The files' text, joined as the harness joins them for the device; None where one is not a plain file inside."""
    root = suite_dir.resolve()
    texts = []
    for name in sources:
        path = (root / name).resolve()
        if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > SOURCE_BYTES_MAX:
            return None
        texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


def _believable(facts: Any) -> Facts | None:
    """What the compiler's process said, if it is names with texts and finite numbers."""
    if not isinstance(facts, dict) or not all(isinstance(name, str) for name in facts):
        return None
    if not all(isinstance(value, str | float | int) and not isinstance(value, bool) for value in facts.values()):
        return None
    return {name: value if isinstance(value, str) else float(value) for name, value in facts.items()}
