"""The launcher: isolates itself, keeps watch over the locked-in process, and tells the runner how it ended.

    runner -> launcher (waits) -> supervisor (first process of its namespace) -> the command, locked in

The supervisor sleeps until a child ends or the runner's end of the lifeline pipe closes (the runner was killed): then
it kills all its descendants. Where process namespaces work, its own end takes everything with it even if it is killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

from runners.confine import linux, namespaces
from runners.confine.lock_in import lock_in
from runners.confine.spec import Spec

_CENSUS_MS = 1000


def main(spec: Spec) -> int:
    """Run one command to its end; the exit status only matters for the runner's wait()."""
    os.umask(0o022)
    facts: dict[str, str] = {}
    reached = namespaces.isolate()
    facts["isolated"] = ",".join(sorted(reached)) or "none"
    uid = _choose_user(spec, reached, facts)
    _give_away(spec.write, uid)
    if "mounts" in reached:
        facts["read_only_root"] = "yes" if namespaces.make_read_only(spec.write) else "no"
    first = os.fork()
    if first == 0:
        os._exit(_supervise(spec, uid, reached, facts))
    for descriptor in (spec.requests_fd, spec.results_fd, spec.status_fd, spec.lifeline_fd):
        os.close(descriptor)
    os.waitpid(first, 0)
    return 0


def _choose_user(spec: Spec, reached: frozenset[str], facts: dict[str, str]) -> int | None:
    """The unprivileged user to become, or None: not root, or the interpreter would be out of that user's reach."""
    if spec.drop_to_uid is None or os.geteuid() != 0:
        return None
    needed = (*spec.read, *spec.write)
    if "mounts" in reached:
        try:
            namespaces.reveal(needed)
        except OSError as error:
            facts["closed_folders"] = str(error)
    closed = namespaces.first_closed(spec.read)
    if closed is None:
        return spec.drop_to_uid
    facts["closed_folders"] = f"{closed} is closed to other users"
    return None


def _give_away(folders: tuple[str, ...], uid: int | None) -> None:
    """Make the writable folders belong to the user who will write there."""
    if os.geteuid() != 0:
        return
    owner = 0 if uid is None else uid
    for folder in folders:
        if Path(folder).stat().st_uid == owner:
            continue
        os.chown(folder, owner, owner)
        for where, folders_in, files_in in os.walk(folder):
            for name in (*folders_in, *files_in):
                os.lchown(Path(where) / name, owner, owner)


def _supervise(spec: Spec, uid: int | None, reached: frozenset[str], facts: dict[str, str]) -> int:
    if "processes" in reached:
        # Safe only here: its death takes the whole namespace along; elsewhere it must live to kill its descendants.
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if "mounts" in reached:
            facts["private_proc"] = "yes" if namespaces.private_proc() else "no"
    else:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    command = os.fork()
    if command == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(spec.lifeline_fd)
        lock_in(spec, uid, facts)
    os.close(spec.requests_fd)
    os.close(spec.results_fd)
    end = _watch(command, spec=spec, wake=wake_read)
    _kill_descendants()
    if end:
        with suppress(OSError):
            os.write(spec.status_fd, (json.dumps(end) + "\n").encode())
    return 0


def _watch(command: int, *, spec: Spec, wake: int) -> dict[str, object]:
    """Wait until the command ends, takes more than its share, or the runner is gone (empty); reap orphans meanwhile."""
    poll = select.poll()
    poll.register(spec.lifeline_fd, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        ready = poll.poll(_CENSUS_MS)
        excess = None if ready else _excess(spec)
        if excess is not None:
            return {"killed": excess}
        for descriptor, _ in ready:
            if descriptor == spec.lifeline_fd:
                return {}
            with suppress(BlockingIOError):
                os.read(wake, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == command:
                return {"exit": os.waitstatus_to_exitcode(status)}


def _excess(spec: Spec) -> str | None:
    """What all processes together have too much of: limits count single processes, or do not bind root at all."""
    alive = _descendants(os.getpid())
    if len(alive) > spec.processes:
        return f"it started more than {spec.processes} processes"
    # The cheap sum counts pages that forks share several times; only when it is too large is it worth the exact one.
    if sum(map(_resident_bytes, alive)) > spec.data_bytes < sum(map(_own_bytes, alive)):
        return f"its processes together used more than {spec.data_bytes >> 20} MiB of memory"
    return None


def _resident_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _own_bytes(pid: int) -> int:
    """The process's proportional share (PSS): a page used by n processes counts 1/n for each, see proc(5)."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return _resident_bytes(pid)


def _kill_descendants() -> None:
    """Kill everything below this process; repeated, because a fork bomb forks while we look."""
    if os.getpid() == 1:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    for _ in range(100):
        victims = _descendants(os.getpid())
        if not victims:
            return
        for pid in victims:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    frontier = {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found += sorted(frontier)
    return found


if __name__ == "__main__":
    sys.exit(main(Spec.loads(sys.argv[1])))
