"""The whole device host: `kernelwatch runner serve` as a process, a real broker, and the service's HTTP contract."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from runners.identity import RunnerIdentity
from runners.runner_cli import runner

from .conftest import QUICK
from .hostile import FORK_BOMB
from .processes import all_gone, running_with
from .stub_service import order


def wait_for(condition, *, within_s=60.0, what="it"):
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {within_s} s for {what}"
        time.sleep(0.05)


class Host:
    """One device host: a registration, folders, and the worker process."""

    def __init__(self, root: Path, url: str, *, lock_dir: Path, broker_url: str | None, poll_s: float = 600.0) -> None:
        self.root = root
        RunnerIdentity(url=url, runner_id=1, token="runner-token", name="r", pool="cpu", device="cpu").save(
            root / "state"
        )
        (root / "state" / "canary_reference_cpu.txt").write_text("0.002\n")
        self._command = [
            *(sys.executable, "-m", "service.cli", "runner", "serve", "--state-dir", str(root / "state")),
            *("--cache-dir", str(root / "cache"), "--lock-dir", str(lock_dir), "--poll-s", str(poll_s)),
        ]
        if broker_url:
            self._command += ["--broker-url", broker_url]
        self.process: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "REDIS_URL"}
        with (self.root / "log").open("a") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)

    @property
    def log(self) -> str:
        return (self.root / "log").read_text()

    @property
    def pids(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [self.process.pid, *map(int, children.split())]

    def kill(self) -> None:
        """What kill -9 does to all of it at once."""
        for pid in self.pids if self.process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def host(tmp_path, stub):
    hosts = []

    def start(name="one", **more):
        root = tmp_path / name
        root.mkdir()
        found = Host(root, stub.url, lock_dir=tmp_path / "locks", **more)
        hosts.append(found)
        return found

    yield start
    for one in hosts:
        one.kill()
    assert all_gone(str(tmp_path / ""))


RING = """
import sys
from celery import Celery
app = Celery(broker=sys.argv[1])
for run_id in map(int, sys.argv[2:]):
    app.send_task("runners.measure", kwargs={"run_id": run_id}, queue="pool.cpu")
"""


@pytest.fixture
def ring(broker_url):
    """Ring the bell as another process does: kombu leaves sockets to the end of the process that used them."""

    def send(*run_ids):
        subprocess.run([sys.executable, "-c", RING, broker_url, *map(str, run_ids)], check=True)

    return send


@pytest.fixture
def queue(stub, repository):
    sha = repository.good()

    def add(*run_ids, **more):
        for run_id in run_ids:
            fields = {"clone_url": str(repository.root), "sha": sha, "protocol": QUICK} | more
            stub.queued.append(order(run_id, **fields))

    return add


def test_a_message_received_by_two_workers_is_measured_once(host, stub, queue, ring, broker_url):
    one, two = host("one", broker_url=broker_url), host("two", broker_url=broker_url)
    wait_for(lambda: "ready" in one.log and "ready" in two.log, what="both workers")
    wait_for(lambda: stub.claims, what="a first poll")
    queue(1)
    ring(1, 1, 1)
    wait_for(lambda: stub.reports, what="the report")
    wait_for(lambda: one.log.count("succeeded") + two.log.count("succeeded") == 3, what="all three messages")
    assert [claimed for _, claimed in stub.claims].count(True) == 1
    assert stub.deliveries == 1
    assert stub.reports[1, 1].measurements[0].value_s > 0


def test_two_workers_of_a_host_never_measure_at_once(host, stub, queue):
    hosts = [host("one", broker_url=None, poll_s=0.2), host("two", broker_url=None, poll_s=0.2)]
    queue(1, 2, 3, 4)
    wait_for(lambda: len(stub.reports) == 4, what="four reports", within_s=120)
    spans = sorted((report.started_at, report.finished_at) for report in stub.reports.values())
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))
    assert all(one.process.poll() is None for one in hosts)


def test_a_broker_that_is_away_does_not_stop_the_runner(host, stub, queue):
    started = host(broker_url="redis://127.0.0.1:1/0", poll_s=0.5)
    queue(1)
    wait_for(lambda: stub.reports, what="the report")
    assert started.process.poll() is None


def test_a_service_that_is_away_gets_its_report_later(host, stub, queue):
    stub.away = True
    queue(1)
    started = host(broker_url=None, poll_s=0.2)
    wait_for(lambda: "service is away" in started.log, what="the first look")
    stub.away = False
    wait_for(lambda: stub.leased, what="the claim")
    stub.away = True
    wait_for(lambda: "report waits" in started.log, what="the report on disk")
    started.kill()
    stub.away = False
    started.start()
    wait_for(lambda: stub.reports, what="the report")
    assert stub.reports[1, 1].measurements


def test_kill_9_of_the_worker_leaves_nothing_running_and_the_run_completes_once_requeued(
    host, stub, queue, ring, broker_url, repository, tmp_path
):
    started = host(broker_url=broker_url, poll_s=0.5)
    queue(1, sha=repository.hostile("import time; time.sleep(2)"))
    wait_for(lambda: running_with(f"{tmp_path}/one/cache/scratch"), what="a child")
    started.kill()
    assert all_gone(f"{tmp_path}/one/cache/scratch")
    assert stub.reports == {}
    stub.requeue(1)
    started.start()
    wait_for(lambda: stub.reports, what="the report")
    assert set(stub.reports) == {(1, 2)}
    assert "removed what a crash left" in started.log
    wait_for(lambda: not list((tmp_path / "one" / "cache" / "scratch").iterdir()), what="the scratch folder to go")


def test_kill_9_of_the_process_that_measures_is_survived(host, stub, queue, broker_url, repository, tmp_path):
    started = host(broker_url=broker_url, poll_s=0.5)
    queue(1, sha=repository.hostile("import time; time.sleep(2)"))
    wait_for(lambda: running_with(f"{tmp_path}/one/cache/scratch"), what="a child")
    os.kill(started.pids[1], signal.SIGKILL)
    assert all_gone(f"{tmp_path}/one/cache/scratch")
    stub.requeue(1)
    wait_for(lambda: stub.reports, what="the report")
    assert set(stub.reports) == {(1, 2)}


def test_a_stopped_worker_gives_its_run_back(host, stub, queue, broker_url, repository):
    started = host(broker_url=broker_url, poll_s=0.5)
    queue(1, sha=repository.hostile("import time; time.sleep(1)"))
    wait_for(lambda: stub.leased, what="the claim")
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(60) == 0
    assert stub.reports[1, 1].failure.kind == "transient"


def test_a_runner_without_its_child_is_small(host, stub, queue, ring, broker_url, repository):
    started = host(broker_url=broker_url)
    queue(1)
    ring(1)
    wait_for(lambda: stub.reports, what="the report")
    kilobytes = 0
    for pid in started.pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    assert kilobytes <= 150 * 1024, f"{kilobytes >> 10} MiB"


def test_a_fork_bomb_does_not_reach_the_worker(host, stub, queue, broker_url, repository):
    started = host(broker_url=broker_url, poll_s=0.5)
    queue(1, sha=repository.hostile(FORK_BOMB))
    queue(2)
    wait_for(lambda: len(stub.reports) == 2, what="both reports", within_s=120)
    found = {m.benchmark: m.status for m in stub.reports[1, 1].measurements}
    assert (found["hostile"], found["good"]) == ("crashed", "ok")
    assert started.process.poll() is None


def test_registering_keeps_the_runners_own_token(stub, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "canary_reference_cpu.txt").write_text("0.002\n")
    arguments = [
        "register",
        "--url",
        stub.url,
        "--token",
        "once",
        "--pool",
        "cpu",
        "--name",
        "r1",
        "--state-dir",
        state,
    ]
    done = CliRunner().invoke(runner, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    assert RunnerIdentity.load(state).token == "runner-token"
    assert stub.registrations[0].device.startswith("cpu:")
    again = CliRunner().invoke(runner, list(map(str, arguments)))
    assert again.exit_code == 1
    assert "this token has been used" in again.output
