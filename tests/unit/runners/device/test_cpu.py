import os
import random

import pytest

from runners.device.base import Conditions
from runners.device.cpu import facts, pressure
from runners.device.cpu.device import CpuDevice, Priority
from runners.measure.protocol import Flag


@pytest.fixture
def device(tmp_path):
    (tmp_path / "canary_reference_cpu.txt").write_text("0.000138\n")
    return CpuDevice(state_dir=tmp_path, priority=Priority.PLAIN)


def conditions(taken_s=0.0, **readings):
    return Conditions(taken_s, readings)


def reply(wall_s=0.02, cpu_s=0.02):
    return {"wall_s": [wall_s], "cpu_s": [cpu_s]}


def test_a_quiet_block_has_no_flags(device):
    quiet = {"waited_s": 0.0, "steal_s": 0.0, "throttled_s": 0.0, "involuntary_switches": 3.0}
    assert device.judge(conditions(0.0, **quiet), conditions(0.1, **quiet), reply()) == ()


@pytest.mark.parametrize(
    "readings", [{"waited_s": 0.01}, {"steal_s": 0.01}, {"throttled_s": 0.001}, {"involuntary_switches": 1.0}], ids=str
)
def test_each_sign_of_others_on_the_core_is_contended(device, readings):
    before = conditions(0.0, **dict.fromkeys(readings, 0.0))
    assert device.judge(before, conditions(0.1, **readings), reply()) == (Flag.CONTENDED,)


def test_time_off_the_cpu_is_contended_even_where_the_system_says_nothing(device):
    assert device.judge(conditions(), conditions(0.1), reply(0.02, 0.015)) == (Flag.CONTENDED,)


@pytest.mark.parametrize(
    ("after", "flags"),
    [
        ({"busy_s": 12.0, "own_s": 1.9}, ()),  # 0.1 s of others in 2 s
        ({"busy_s": 12.8, "own_s": 1.9}, (Flag.CONTENDED,)),
        ({"pressure_s": 0.1}, ()),
        ({"pressure_s": 0.9}, (Flag.CONTENDED,)),
        ({}, ()),
    ],
    ids=str,
)
def test_others_on_any_core_make_the_whole_session_contended(device, after, flags):
    start = {"busy_s": 10.0, "own_s": 0.0, "pressure_s": 0.0}
    before = conditions(0.0, **{name: start[name] for name in after})
    assert device.judge_session(before, conditions(2.0, **after)) == flags


def test_everybodys_work_is_counted_without_idling_and_steal(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 20 300 4000 50000 6 7 900 5 5\ncpu0 9 9 9 9 9 9 9 9 9 9\n")
    found = pressure.machine_readings(tmp_path)
    assert found["busy_s"] == pytest.approx(334 / os.sysconf("SC_CLK_TCK"))
    assert found["own_s"] == pytest.approx(sum(os.times()[:4]), abs=5)


def test_the_session_gives_the_affinity_back(device):
    before = os.sched_getaffinity(0)
    with device.taken():
        pass
    assert os.sched_getaffinity(0) == before


def test_the_canary_reference_is_measured_once_and_kept(tmp_path):
    first = CpuDevice(state_dir=tmp_path).canary_reference_s
    assert 0 < first < 1
    (tmp_path / "canary_reference_cpu.txt").write_text("0.5\n")
    assert CpuDevice(state_dir=tmp_path).canary_reference_s == 0.5


def test_the_environment_is_stable_and_its_key_follows_the_reference(device):
    one, again, other = device.environment(), device.environment(), device.environment(canary_reference_s=1e-3)
    assert one == again
    assert one.device.startswith("cpu:")
    assert one.comparable_key != other.comparable_key
    assert set(facts.COMPARABLE_FACTS) <= set(one.facts)


def test_an_unknown_fact_is_said_to_be_unavailable(tmp_path):
    found = facts.host_facts(sysfs=tmp_path, procfs=tmp_path)
    assert found["governor"] == found["microcode"] == found["turbo"] == facts.UNAVAILABLE
    assert facts.compiler_version("no-such-compiler") == facts.UNAVAILABLE


def test_cpuinfo_of_arm_is_read_too():
    found = facts.cpuinfo_facts("processor : 0\nCPU part : 0xd40\nFeatures : fp asimd sve\n\nprocessor : 1\n")
    assert found["cpu_model"] == "0xd40"
    assert found["isa"] == "asimd sve"
    assert found["processors"] == "2"


@pytest.mark.parametrize(
    ("cgroup", "folder", "text"),
    [
        ("0::/job\n", "job", "nr_throttled 2\nthrottled_usec 1500\n"),
        ("3:cpu,cpuacct:/job\n0::/\n", "cpu/job", "nr_throttled 2\nthrottled_time 1500000\n"),
    ],
    ids=["v2", "v1"],
)
def test_quota_throttling_is_read_from_both_versions_of_cgroups(tmp_path, cgroup, folder, text):
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(cgroup)
    (root / folder).mkdir(parents=True)
    (root / folder / "cpu.stat").write_text(text)
    assert pressure.throttle_reading(root, proc) == {"throttled_s": pytest.approx(0.0015)}


def test_absent_sources_are_left_out_not_zero(tmp_path):
    assert pressure.process_readings(1, tmp_path) == {}
    assert pressure.steal_reading(0, tmp_path) == {}
    assert pressure.throttle_reading(tmp_path, tmp_path) == {}
    assert pressure.pressure_reading(tmp_path) == {}
    assert pressure.machine_readings(tmp_path) == {}


def test_readings_of_this_process_grow(tmp_path):
    before = pressure.process_readings(os.getpid())
    sum(random.random() for _ in range(200_000))
    after = pressure.process_readings(os.getpid())
    assert after["ran_s"] > before["ran_s"]


def test_steal_is_the_eighth_field_of_the_cpus_line(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 1 1 1 1 1 1 900 0 0\ncpu1 1 2 3 4 5 6 7 50 0 0\n")
    assert pressure.steal_reading(1, tmp_path) == {"steal_s": pytest.approx(50 / os.sysconf("SC_CLK_TCK"))}
