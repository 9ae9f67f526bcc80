"""The sandbox by itself: what a locked-in process sees, and that it never outlives the runner."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from runners.confine import landlock
from runners.errors import ChildDiedError, ChildGarbageError, ChildTimedOutError
from runners.sandbox import Access, Limits, spawn

from .processes import all_gone, running_with

ECHO = """
import json, os, sys
requests, replies = os.fdopen(3), os.fdopen(4, "w")
for line in requests:
    message = json.loads(line)
    try:
        value = eval(message["do"])
    except Exception as error:
        value = f"{type(error).__name__}: {error}"
    replies.write(json.dumps({"id": message["id"], "value": str(value)}) + "\\n")
    replies.flush()
"""


@pytest.fixture
def child(tmp_path):
    started = []

    def start(code=ECHO, *, access=None, **limits):
        found = spawn(
            access=access or Access(),
            limits=Limits(**limits),
            scratch_root=tmp_path / "scratch",
            command=(sys.executable, "-c", code),
        )
        started.append(found)
        return found

    yield start
    for one in started:
        one.close()


def ask(child, expression, timeout_s=20.0):
    return child.request({"op": "eval", "do": expression}, timeout_s=timeout_s)["value"]


def test_the_environment_is_built_from_nothing(child, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    seen = ask(child(), "sorted(os.environ)")
    assert "DATABASE_URL" not in seen
    assert "TMPDIR" in seen


def test_only_the_private_descriptors_are_open(child):
    assert ask(child(), "sorted(map(int, os.listdir('/proc/self/fd')))") == "[0, 1, 2, 3, 4, 5]"  # 5 lists the folder


def test_it_writes_only_where_it_may(child, tmp_path):
    (tmp_path / "build").mkdir()
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "a.txt").write_text("kernel")
    started = child(access=Access(read=(tmp_path / "suite",), write=(tmp_path / "build",)))
    assert ask(started, f"open('{tmp_path}/suite/a.txt').read()") == "kernel"
    assert ask(started, f"open('{tmp_path}/build/b', 'w').write('x')") == "1"
    assert ask(started, "open('here', 'w').write('x')") == "1"
    for path in (f"{tmp_path}/suite/c", f"{tmp_path}/d", "/tmp/e", "/dev/shm/f"):
        assert "Error" in ask(started, f"open('{path}', 'w')"), path


@pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock, so reading cannot be forbidden")
def test_it_reads_nobodys_secrets(child, tmp_path):
    (tmp_path / "token").write_text("secret")
    assert "Error" in ask(child(), f"open('{tmp_path}/token').read()")


def test_a_pid_is_what_the_runner_sees(child):
    started = child()
    ask(started, "1")  # until its command has begun, a process shows no command line
    assert "-c" in Path(f"/proc/{started.pid}/cmdline").read_text()
    os.sched_setaffinity(started.pid, {min(os.sched_getaffinity(0))})


def test_a_file_cannot_grow_without_bound(child):
    answer = ask(child(file_bytes=1 << 20), "open('big', 'wb').write(b'x' * (2 << 20))")
    assert "File too large" in answer


def test_a_late_answer_ends_the_process(child):
    started = child()
    with pytest.raises(ChildTimedOutError, match="no answer to 'eval' within 1 s"):
        ask(started, "__import__('time').sleep(60)", timeout_s=1.0)
    with pytest.raises(ChildDiedError):
        ask(started, "1")


def test_a_process_that_does_not_read_times_out(child):
    started = child("import time; time.sleep(60)")
    with pytest.raises(ChildTimedOutError):
        started.request({"op": "x", "padding": "x" * (1 << 20)}, timeout_s=1.0)


def test_an_error_keeps_what_was_printed_last(child):
    started = child("print('compiling'); raise SystemExit('no such kernel')")
    with pytest.raises(ChildDiedError, match="ended with status 1") as caught:
        ask(started, "1")
    assert "compiling" in caught.value.log_tail
    assert "no such kernel" in caught.value.log_tail


def test_cpu_time_is_limited(child):
    started = child("while True: pass", cpu_s=1)
    with pytest.raises(ChildDiedError, match="used up its CPU time"):
        ask(started, "1")


@pytest.mark.parametrize("answer", ["[1]", "{}", '{"id": "guessed"}', "[" * 100_000, '{"id": 1e999}'])
def test_an_answer_that_was_not_asked_for_is_garbage(child, answer):
    started = child(
        f"import os; os.read(3, 1); os.write(4, {answer!r}.encode() + b'\\n'); os.read(3, 1000); os.read(3, 1)"
    )
    with pytest.raises(ChildGarbageError):
        ask(started, "1")


def test_a_command_that_ends_by_itself_says_how(child):
    assert child("raise SystemExit(7)").finish(timeout_s=20) == 7
    assert child("import os; os.kill(os.getpid(), 9)").finish(timeout_s=20) == -9


def test_a_closed_child_leaves_no_descriptor_open(child):
    child().close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        child().close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


RUNNER = """
import sys, time
from pathlib import Path
from runners.confine import linux, seccomp
from runners.sandbox import Access, Limits, spawn
if sys.argv[2] == "without namespaces":
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.restrict()  # forbids unshare and mount to this runner and so to its sandbox
CODE = '''
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(600)
os.write(4, b"{}")
time.sleep(600)
'''
child = spawn(access=Access(), limits=Limits(), scratch_root=Path(sys.argv[1]), command=(sys.executable, "-c", CODE))
print(child.facts["isolated"], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kernel", ["as it is", "without namespaces"])
def test_kill_9_of_the_runner_leaves_nothing_running(tmp_path, kernel):
    scratch = tmp_path / "scratch"
    runner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUNNER), str(scratch), kernel], stdout=subprocess.PIPE, text=True
    )
    try:
        isolated = runner.stdout.readline().strip()
        assert (isolated == "none") == (kernel == "without namespaces") or kernel == "as it is"
        deadline_s = time.monotonic() + 20
        while len(running_with(f"{scratch}/run-")) < 7:  # the command, three children and three grandchildren
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        assert all_gone(f"{scratch}/run-")
    finally:
        runner.kill()
        runner.wait()
        runner.stdout.close()
