"""One order from checkout to report: builds, partners, limits, and whose fault a failure is."""

import pytest

from runners.errors import RunnerError
from runners.job import Job
from runners.measure.session import HoldLostError
from service.contract import FailureKind, FailureStage, MeasurementStatus, RunReason

from .conftest import QUICK
from .hostile import GOOD_SUITE
from .processes import all_gone
from .stub_service import order

BROKEN = {"suite/broken.py": "def"}


def with_table(text: str) -> dict[str, str]:
    return GOOD_SUITE | {"pyproject.toml": f"[tool.kernelwatch]\n{text}\n"}


def test_a_partner_is_measured_interleaved_in_the_same_report(repository, measure):
    one = repository.good()
    two = repository.commit({"suite/note.txt": "2"})
    report = measure(two, partner_shas=(one,))
    assert sorted((m.sha, str(m.status)) for m in report.measurements) == sorted([(one, "ok"), (two, "ok")])
    assert report.commit_failures == ()


def test_a_partner_that_cannot_be_had_is_named_and_the_commit_is_still_measured(repository, measure):
    good = repository.good()
    report = measure(good, partner_shas=("f" * 40,))
    assert [m.sha for m in report.measurements] == [good]
    (failed,) = report.commit_failures
    assert (failed.sha, failed.failure.stage, failed.failure.kind) == (
        "f" * 40,
        FailureStage.CHECKOUT,
        FailureKind.PERMANENT,
    )
    assert report.failure is None


def test_a_partner_whose_suite_is_broken_is_named_too(repository, measure):
    good = repository.good()
    broken = repository.commit(BROKEN)
    report = measure(good, partner_shas=(broken,))
    assert [(m.sha, m.status) for m in report.measurements] == [(good, MeasurementStatus.OK)]
    assert [(f.sha, f.failure.stage) for f in report.commit_failures] == [(broken, FailureStage.DISCOVER)]


def test_a_commit_that_is_not_there_fails_for_good(repository, measure):
    repository.good()
    report = measure("e" * 40)
    assert (report.failure.stage, report.failure.kind) == (FailureStage.CHECKOUT, FailureKind.PERMANENT)
    assert report.measurements == ()


def test_a_repository_that_is_away_is_tried_again(repository, measure, tmp_path):
    report = measure("e" * 40, clone_url=str(tmp_path / "nothing"))
    assert (report.failure.stage, report.failure.kind) == (FailureStage.CHECKOUT, FailureKind.TRANSIENT)


def test_the_build_command_of_the_commit_runs_locked_in_and_its_products_are_kept(repository, measure, tmp_path):
    command = "pwd && touch made-in-worktree && echo built > $KERNELWATCH_BUILD_DIR/product && ! touch ../outside"
    report = measure(repository.commit(with_table(f"build_command = '{command}'")))
    assert report.failure is None, report.failure
    assert [path.read_text() for path in (tmp_path / "cache" / "builds").rglob("product")] == ["built\n"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo no such header >&2; exit 3", "ended with status 3"),
        ("yes", "printed more than 8 MiB"),
        ("sleep 600 & setsid sleep 600 & sleep 600", "no answer to 'the command' within"),
    ],
)
def test_a_build_command_that_fails_is_the_commits_failure(repository, measure, monkeypatch, tmp_path, command, reason):
    monkeypatch.setattr("runners.job.BUILD_LIMIT_S", 2.0)
    report = measure(repository.commit(with_table(f"build_command = '{command}'")))
    assert (report.failure.stage, report.failure.kind) == (FailureStage.BUILD, FailureKind.PERMANENT)
    assert reason in report.failure.reason
    assert all_gone(str(tmp_path / "cache"))


def test_what_a_failed_build_printed_is_kept(repository, measure):
    report = measure(repository.commit(with_table("build_command = 'echo no such header >&2; exit 3'")))
    assert "no such header" in report.failure.log_tail


def test_a_wrong_table_is_the_commits_failure(repository, measure):
    report = measure(repository.commit(with_table("build_command = 3")))
    assert report.failure.stage is FailureStage.DISCOVER
    assert "build_command must be text" in report.failure.reason


def test_a_run_that_takes_too_long_is_ended(repository, measure):
    with pytest.raises(RunnerError, match="longer than its limit of 0 s"):
        measure(repository.good(), time_limit_s=0.0001)


def test_a_run_that_was_taken_away_stops(repository, workshop):
    taken = order(1, sha=repository.good(), clone_url=str(repository.root), protocol=QUICK)
    stages = []

    def progress(stage, *_):
        stages.append(stage)
        return stage != "measure"

    with pytest.raises(HoldLostError):
        Job(taken, workshop, progress).carry_out()
    assert stages[-1] == "measure"
    assert list((workshop.cache_dir / "scratch").iterdir()) == []


def test_an_unchanged_suite_is_built_once(repository, measure, tmp_path):
    measure(repository.good())
    measure(repository.commit({"README.md": "words"}))
    assert len(list((tmp_path / "cache" / "builds").glob("*/*.used"))) == 1
    measure(repository.commit({"suite/note.txt": "changed"}))
    assert len(list((tmp_path / "cache" / "builds").glob("*/*.used"))) == 2


def test_an_aa_run_measures_a_commit_against_itself(repository, measure):
    report = measure(repository.good(), reason=RunReason.AA)
    (found,) = report.measurements
    assert found.status is MeasurementStatus.OK
    pairs = {block.process // 2 for block in found.blocks}
    assert {block.process for block in found.blocks} == {2 * pair + side for pair in pairs for side in (0, 1)}
    assert report.commit_failures == ()
    assert report.memory_canary_cpu_s > 0


def test_a_canary_run_needs_nothing_of_its_commit(measure):
    report = measure("f" * 40, reason=RunReason.CANARY)
    assert (report.measurements, report.commit_failures, report.failure) == ((), (), None)
    assert report.canary_wall_s >= report.canary_cpu_s > 0
    assert report.memory_canary_wall_s >= report.memory_canary_cpu_s > 0
    assert report.environment is not None
    assert report.device_s > 0
