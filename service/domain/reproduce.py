"""The commands that show a change on another machine. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

SHORT = 12


def compare_command(*, good_sha: str, bad_sha: str, culprit_sha: str | None, workload: str | None) -> str:
    """Compare the named commit with its parent, or, while none is named, both ends of the range."""
    head = (culprit_sha or bad_sha)[:SHORT]
    base = f"{head}~1" if culprit_sha else good_sha[:SHORT]
    kernel = f" --kernel '{workload}'" if workload else ""
    return f"kernelwatch compare {base} {head}{kernel}"


def clone_command(clone_url: str) -> str:
    """Clone a repository and go into it; a name and password in the address stay out of what people copy."""
    parts = urlsplit(clone_url)
    host = parts.netloc.rpartition("@")[2] if parts.scheme in {"http", "https"} else parts.netloc
    address = urlunsplit(parts._replace(netloc=host))
    folder = address.rstrip("/").replace(":", "/").rsplit("/", 1)[-1].removesuffix(".git") or "kernels"
    return f"git clone '{address}' '{folder}' && cd '{folder}'"
