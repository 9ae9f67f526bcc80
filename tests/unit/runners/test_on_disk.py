"""What a runner keeps on disk: its registration, its locks, its scratch folders, its own code."""

import os
import subprocess
import sys

import pytest

from runners.harness import harness_hash
from runners.identity import NotRegisteredError, RunnerIdentity
from runners.lock import device_lock
from runners.scratch import HeldDir, remove_stale, remove_tree
from runners.utterance import LOG_HEAD_BYTES, LOG_TAIL_BYTES, KeptLog, describe_exit, finite_number

IDENTITY = RunnerIdentity(url="http://service", runner_id=3, token="secret", name="r", pool="cpu", device="cpu")


def test_patient_runner_gets_a_device_that_becomes_free_meanwhile(tmp_path):
    import threading

    taken = threading.Event()

    def hold_for_a_moment():
        with device_lock(tmp_path, "cpu"):
            taken.set()
            threading.Event().wait(0.2)

    holder = threading.Thread(target=hold_for_a_moment)
    holder.start()
    taken.wait()
    with device_lock(tmp_path, "cpu", patience_s=30) as free:
        assert free
    holder.join()


def test_a_registration_is_kept_and_only_its_owner_can_read_it(tmp_path):
    IDENTITY.save(tmp_path / "state")
    assert RunnerIdentity.load(tmp_path / "state") == IDENTITY
    assert (tmp_path / "state" / "runner.json").stat().st_mode & 0o077 == 0


def test_no_registration_says_what_to_do(tmp_path):
    with pytest.raises(NotRegisteredError, match="kernelwatch runner register"):
        RunnerIdentity.load(tmp_path)
    for text in ("", "[]", '{"url": "x"}'):
        (tmp_path / "runner.json").write_text(text)
        with pytest.raises(NotRegisteredError, match="register this runner again"):
            RunnerIdentity.load(tmp_path)


def test_one_device_has_one_user_at_a_time_and_another_device_is_free(tmp_path):
    with (
        device_lock(tmp_path, "cpu") as first,
        device_lock(tmp_path, "cpu") as second,
        device_lock(tmp_path, "cuda-0") as other,
    ):
        assert (first, second, other) == (True, False, True)
    with device_lock(tmp_path, "cpu") as again:
        assert again


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = (
        "import os, pathlib, sys; from runners.lock import device_lock\n"
        "with device_lock(pathlib.Path(sys.argv[1]), 'cpu') as free: os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -9
    with device_lock(tmp_path, "cpu") as free:
        assert free


def test_only_folders_without_an_owner_are_stale(tmp_path):
    mine = HeldDir(tmp_path, "run")
    mine.make()
    lost = tmp_path / "run-lost"
    (lost / "deep").mkdir(parents=True)
    lost.with_suffix(".held").touch()
    assert remove_stale(tmp_path) == 1
    assert mine.path.exists()
    assert not lost.exists()
    mine.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_full_of_traps_is_removed_and_what_its_links_lead_to_is_not(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    trap = tmp_path / "trap"
    (trap / "closed" / "inner").mkdir(parents=True)
    (trap / "closed" / "inner" / "file").touch()
    (trap / "link").symlink_to(outside)
    (trap / "closed" / "inner").chmod(0)
    (trap / "closed").chmod(0)
    remove_tree(trap)
    assert not trap.exists()
    assert (outside / "kept").exists()
    remove_tree(trap)


def test_the_harness_hash_changes_with_the_harness(monkeypatch, tmp_path):
    import runners

    package = tmp_path / "runners"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(runners, "__file__", str(package / "__init__.py"))
    before = harness_hash()
    (package / "timer.py").write_text("quick = True")
    assert harness_hash() != before


def test_a_log_keeps_its_beginning_and_its_end_in_bounded_memory():
    log = KeptLog(limit_bytes=1 << 20)
    log.add(b"first line\n")
    for _ in range(1000):
        log.add(b"x" * 1000)
    log.add(b"last line\0")
    text = log.text()
    assert text.startswith("first line")
    assert text.endswith("last line")
    assert "bytes left out" in text
    assert len(text) < LOG_HEAD_BYTES + LOG_TAIL_BYTES + 100
    assert not log.overflowed
    log.add(b"x" * (1 << 20))
    assert log.overflowed


def test_a_short_log_is_kept_whole():
    log = KeptLog(limit_bytes=100)
    log.add(b"a\n")
    log.add(b"b\n")
    assert log.text() == "a\nb\n"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused(text):
    with pytest.raises(ValueError, match="finite"):
        finite_number(text)


@pytest.mark.parametrize(
    ("code", "words"),
    [(None, "closed its result channel"), (-24, "CPU time"), (-11, "SIGSEGV"), (-35, "signal 35"), (3, "status 3")],
)
def test_ends_in_words(code, words):
    assert words in describe_exit(code)
    assert os.linesep not in describe_exit(code)
