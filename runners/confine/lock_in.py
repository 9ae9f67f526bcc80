"""The last steps before a stranger's code runs: each gives something up, and none can be undone.

Order matters: 1. descriptors; 2. limits; 3. user and capabilities; 4. Landlock (needs no_new_privs, opens paths as the
new user); 5. seccomp (would forbid the steps before it); 6. exec with an environment built from nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from runners.confine import landlock, linux, namespaces, seccomp
from runners.confine.spec import REQUESTS_FD, RESULTS_FD, Spec

SYSTEM_READ = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc",
    "/opt",
    "/nix",
    "/proc",
    "/sys",
    "/run/nvidia",
)
SYSTEM_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_CANNOT_EXEC = 127
_SPARE_FD = 16
_HIGHEST_FD = 1 << 16


def lock_in(spec: Spec, drop_to_uid: int | None, facts: dict[str, str]) -> NoReturn:
    """Shut every door and become the command; on a failure say why on the status descriptor and exit 127."""
    status_fd = spec.status_fd
    try:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        status_fd = _arrange_descriptors(spec)
        _offer_to_the_oom_killer()
        os.chdir(spec.working_dir)
        _limit(spec)
        facts["user"] = _become(drop_to_uid)
        modes = seccomp.Modes.FREE if facts.get("read_only_root") == "yes" else seccomp.Modes.FIXED
        facts["files"], facts["sockets"] = _landlock(spec), _seccomp(modes)
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user clears it
        os.write(status_fd, (json.dumps({"facts": facts}) + "\n").encode())
        os.execve(spec.command[0], list(spec.command), spec.environment)  # noqa: S606 - a list, and no shell
    except OSError as error:
        os.write(status_fd, (json.dumps({"error": f"the sandbox could not be set up: {error}"}) + "\n").encode())
    finally:
        os._exit(_CANNOT_EXEC)


def _arrange_descriptors(spec: Spec) -> int:
    """Requests on 3, results on 4, the status descriptor close-on-exec, everything else closed."""
    requests, results, status = (
        fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _SPARE_FD) for fd in (spec.requests_fd, spec.results_fd, spec.status_fd)
    )
    os.dup2(requests, REQUESTS_FD)
    os.dup2(results, RESULTS_FD)
    os.closerange(RESULTS_FD + 1, status)
    os.closerange(status + 1, _HIGHEST_FD)
    return status


def _offer_to_the_oom_killer() -> None:
    """When memory runs out, this process is the one to go, not the runner."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit(spec: Spec) -> None:
    limits = [
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, spec.cpu_s, spec.cpu_s + 1),
        (resource.RLIMIT_DATA, spec.data_bytes, spec.data_bytes),
        (resource.RLIMIT_FSIZE, spec.file_bytes, spec.file_bytes),
        (resource.RLIMIT_NOFILE, spec.open_files, spec.open_files),
        (resource.RLIMIT_NPROC, spec.processes, spec.processes),
    ]
    if spec.address_space_bytes is not None:
        limits.append((resource.RLIMIT_AS, spec.address_space_bytes, spec.address_space_bytes))
    for which, soft, hard in limits:
        highest = resource.getrlimit(which)[1]
        if highest == resource.RLIM_INFINITY:
            resource.setrlimit(which, (soft, hard))
        else:
            resource.setrlimit(which, (min(soft, highest), min(hard, highest)))


def _become(drop_to_uid: int | None) -> str:
    """Become the unprivileged user, in a user namespace of its own so that the limit on processes counts only these."""
    if drop_to_uid is not None:
        os.setgroups([])
        os.setresgid(drop_to_uid, drop_to_uid, drop_to_uid)
        os.setresuid(drop_to_uid, drop_to_uid, drop_to_uid)
        own = namespaces.enter_user_namespace()
        identity = f"uid {drop_to_uid}" + (" in its own namespace" if own else "")
    else:
        identity = "the runner's user"
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.drop_capabilities()
    return identity


def _landlock(spec: Spec) -> str:
    try:
        version = landlock.restrict(
            read=(*SYSTEM_READ, *spec.read), write=spec.write, devices=(*SYSTEM_DEVICES, *spec.devices)
        )
    except OSError as error:
        return f"open ({error})"
    return f"landlock {version}"


def _seccomp(modes: seccomp.Modes) -> str:
    try:
        seccomp.restrict(modes)
    except OSError as error:
        return f"open ({error})"
    return "seccomp"
