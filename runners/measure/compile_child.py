"""The process that compiles CUDA sources for the static facts: the compiler's, apart from every commit's code.

python -P -m runners.measure.compile_child --requests-fd N --replies-fd M
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from runners.errors import RunnerError


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """Compile one source for every architecture and read what came out."""
    from runners.measure.static_cuda import source_facts

    try:
        return {"ok": True, "facts": source_facts(message["source"], tuple(message["flags"]))}
    except RunnerError as error:
        return {"ok": False, "error": str(error)}


def main() -> None:
    """Answer until the requests end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests-fd", type=int, required=True)
    parser.add_argument("--replies-fd", type=int, required=True)
    arguments = parser.parse_args()
    with (
        os.fdopen(arguments.requests_fd, "r", encoding="utf-8") as requests,
        os.fdopen(arguments.replies_fd, "w", encoding="utf-8") as replies,
    ):
        for line in requests:
            message = json.loads(line)
            replies.write(json.dumps(answer(message) | {"id": message.get("id")}) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
