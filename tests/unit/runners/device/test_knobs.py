import pytest

from runners.device.cpu import knobs


@pytest.fixture
def sysfs(tmp_path):
    cpu = tmp_path / "sys" / "devices/system/cpu"
    for core in ("cpu0", "cpu1"):
        (cpu / core / "cpufreq").mkdir(parents=True)
        (cpu / core / "cpufreq" / "scaling_governor").write_text("powersave\n")
    (cpu / "intel_pstate").mkdir()
    (cpu / "intel_pstate" / "no_turbo").write_text("0\n")
    return tmp_path / "sys"


def governor(sysfs, core="cpu1"):
    return (sysfs / "devices/system/cpu" / core / "cpufreq/scaling_governor").read_text().strip()


def test_quiet_is_set_on_every_core_and_put_back(sysfs, tmp_path):
    journal = tmp_path / "state" / "tuned.json"
    done = knobs.set_quiet(knobs.find_knobs(sysfs), journal)
    assert done == ["governor: powersave -> performance", "no_turbo: 0 -> 1"]
    assert governor(sysfs) == "performance"
    assert len(knobs.restore(journal)) == 3
    assert governor(sysfs) == "powersave"
    assert not journal.exists()


def test_after_a_crash_a_second_tuning_still_knows_the_first_values(sysfs, tmp_path):
    journal = tmp_path / "tuned.json"
    knobs.set_quiet(knobs.find_knobs(sysfs), journal)
    (sysfs / "devices/system/cpu/cpu0/cpufreq/scaling_governor").write_text("schedutil\n")
    knobs.set_quiet(knobs.find_knobs(sysfs), journal)
    knobs.restore(journal)
    assert governor(sysfs, "cpu0") == "powersave"


def test_a_machine_without_knobs_has_none_and_nothing_is_written(tmp_path):
    assert knobs.find_knobs(tmp_path) == []
    assert knobs.set_quiet([], tmp_path / "tuned.json") == []
    assert knobs.restore(tmp_path / "tuned.json") == []


def test_what_is_quiet_already_is_left_alone(sysfs, tmp_path):
    knobs.set_quiet(knobs.find_knobs(sysfs), tmp_path / "tuned.json")
    assert knobs.set_quiet(knobs.find_knobs(sysfs), tmp_path / "tuned.json") == []
