"""The standing of runners: judged after every report, changed by hand, and how a runner earns its trust back.

1. `note_job` keeps what a report showed of its runner and judges it (`domain.health`), in the report's transaction.
2. A change of standing is audited and told once to the channels of whoever owns the machines.
3. A quarantined runner gets canary runs, an advisory one A/A runs, ordered for it alone (`order_proofs`); what else is
   queued stays for the others of its pool.

Whoever changes a standing holds the runner's row, so eight reports at once make one change and one notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.contract import DeviceHealth, RunReason, RunReport, SampleBlock
from service.domain import health
from service.domain.health import JobHealth, Judgement
from service.domain.states import Standing
from service.store import audit
from service.store import health as store
from service.store.tables import Run, Runner
from service.usecases import alert
from service.usecases.aftermath import Aftermath
from service.usecases.dispatch import order_run

SYSTEM = "kernelwatch"
CPU_DEVICE = "cpu:"
CONTENDED = "contended"
QUIET_BLOCKS = 4  # so many undisturbed blocks tell the canary better than all blocks together
LOWER_QUARTILE = 0.25
PROOF_PRIORITY = -20  # whatever else is queued comes first
PROOF_PAUSE = timedelta(minutes=2)
LONGEST_PAUSE = timedelta(hours=1)


class StandingRefusedError(ValueError):
    """A standing cannot be changed as asked; the message is a sentence for the person who asked."""


def note_job(session: Session, *, runner: Runner, run: Run, report: RunReport, now: datetime) -> Aftermath:
    """Keep what a report shows of its runner, and judge the runner; the caller holds the runner's row."""
    job = job_of(report)
    if job is None:
        return Aftermath()
    key = report.environment.comparable_key if report.environment is not None else None
    past = store.past_of(session, runner=runner, comparable_key=key, epoch=report.harness_epoch, now=now)
    fresh = store.insert_job(
        session,
        runner_id=runner.id,
        run=run,
        comparable_key=key,
        epoch=report.harness_epoch,
        job=job,
        finding=health.judge_job(job, past),
        now=now,
    )
    return judge(session, runner=runner, now=now) if fresh else Aftermath()


def job_of(report: RunReport) -> JobHealth | None:
    """Return what a report shows of its runner; None for one that never came to the device.

    On a CPU the canary is read on the thread's clock, which neighbours disturb least; a GPU's is timed by the device
    itself. Of the blocks that nobody disturbed, if there are enough, the lower quartile counts.
    """
    shown = report.device_health or DeviceHealth()
    if report.canary_wall_s is None and report.device_health is None:
        return None
    facts = report.environment.facts if report.environment is not None else {}
    on_cpu = report.environment is not None and report.environment.device.startswith(CPU_DEVICE)
    blocks = [block for item in report.measurements for block in item.blocks]
    quiet = [block for block in blocks if CONTENDED not in block.flags]
    compute_s = report.canary_cpu_s if on_cpu else report.canary_wall_s
    if len(quiet) >= QUIET_BLOCKS:
        compute_s = health.quantile(sorted(_canary_s(quiet, on_cpu=on_cpu)), LOWER_QUARTILE)
    disturbed = sum(CONTENDED in item.flags for item in report.measurements)
    width = facts.get("pcie_width", "")
    return JobHealth(
        compute_canary_s=compute_s or None,
        memory_canary_s=(report.memory_canary_cpu_s if on_cpu else report.memory_canary_wall_s) or None,
        contended=CONTENDED in report.flags or 2 * disturbed > len(report.measurements),
        ecc_uncorrected=shown.ecc_uncorrected,
        xid_errors=shown.xid_errors,
        pcie_width=int(width) if width.isdigit() else None,
        slowest_nvml_call_s=shown.slowest_nvml_call_s,
    )


def _canary_s(blocks: Sequence[SampleBlock], *, on_cpu: bool) -> list[float]:
    return [block.canary_cpu_s if on_cpu else block.canary_wall_s for block in blocks]


def judge(session: Session, *, runner: Runner, now: datetime) -> Aftermath:
    """Let a runner's jobs and A/A comparisons say where it stands; what a person has decided stays."""
    if runner.standing_by is not None and runner.standing != Standing.TRUSTED:
        return Aftermath()
    before = Judgement(Standing(runner.standing), runner.standing_reason or "")
    found = health.judge(before, store.findings_of(session, runner=runner), store.alarms_of(session, runner=runner))
    if found.standing is before.standing:
        return Aftermath()
    return _move(session, runner=runner, wanted=found, by=None, now=now)


def decide(session: Session, *, runner_id: int, wanted: Standing, reason: str, actor: str, now: datetime) -> Aftermath:
    """Quarantine or release a runner by hand.

    Who quarantines by hand also releases by hand. A release begins the runner's past anew: it is not thrown back by
    what it had shown before. Raises LookupError, and StandingRefusedError with a sentence.
    """
    runner = store.lock_runner(session, runner_id=runner_id)
    if runner is None:
        raise LookupError(f"there is no runner {runner_id}")
    if wanted is Standing.ADVISORY:
        raise StandingRefusedError("only its A/A comparisons make a runner advisory: quarantine it, or release it")
    if runner.standing == wanted:
        raise StandingRefusedError(f"{runner.name} is {wanted} already")
    if not reason.strip():
        raise StandingRefusedError("say why: the reason is kept in the log")
    if wanted is Standing.TRUSTED:
        runner.judged_from = now
    return _move(session, runner=runner, wanted=Judgement(wanted, reason.strip()), by=actor, now=now)


def _move(session: Session, *, runner: Runner, wanted: Judgement, by: str | None, now: datetime) -> Aftermath:
    before = {"standing": runner.standing, "reason": runner.standing_reason}
    runner.standing, runner.standing_reason = wanted.standing.value, wanted.reason
    runner.standing_since, runner.standing_by = now, by
    runner.standing_changes += 1
    session.flush()
    audit.record(
        session,
        actor=by or SYSTEM,
        action=f"runner.{wanted.standing}",
        subject=("runner", runner.id),
        before=before,
        after={"standing": wanted.standing.value, "reason": wanted.reason},
    )
    told = alert.tell_of_runner(session, runner=runner, words=sentence(runner), now=now)
    return Aftermath(deliver=told)


def may_judge(session: Session, *, run: Run) -> bool:
    """Whether a comparison's verdict counts: not where its runner has lost its trust while it measured."""
    runner = session.get(Runner, run.runner_id) if run.runner_id is not None else None
    return runner is None or runner.standing == Standing.TRUSTED


def sentence(runner: Runner) -> str:
    """Return what is said of a runner whose standing has changed."""
    by = f" by {runner.standing_by}" if runner.standing_by else ""
    meaning = {
        Standing.TRUSTED: "it measures as before",
        Standing.ADVISORY: "it goes on measuring, but confirmations and searches wait for another runner of its pool",
        Standing.QUARANTINED: "it measures canaries only; its work waits for another runner of its pool",
    }[Standing(runner.standing)]
    return f"{runner.name} (pool {runner.pool}) is {runner.standing}{by}: {runner.standing_reason}; {meaning}."


def order_proofs(session: Session, *, now: datetime) -> Aftermath:
    """Order what an untrusted runner may prove itself by, one at a time, ever more seldom; a second beat orders none.

    Canaries for a quarantined runner (on the commit that it had last in hand, of which it needs nothing), its last A/A
    again for an advisory one.
    """
    aftermath = Aftermath()
    for runner in store.untrusted(session):
        reason = RunReason.CANARY if runner.standing == Standing.QUARANTINED else RunReason.AA
        last = store.last_run_of(session, runner_id=runner.id, reason=None if reason is RunReason.CANARY else reason)
        proofs = store.proofs_of(session, runner=runner)
        if last is None or not _is_time(proofs, now):
            continue
        run = order_run(
            session,
            repository_id=last.repository_id,
            commit_id=last.commit_id,
            pool=runner.pool,
            reason=reason,
            priority=PROOF_PRIORITY,
            dedupe_key=store.proof_key(runner, len(proofs)),
            workload_keys=() if reason is RunReason.CANARY else last.workload_keys,
            protocol=None if reason is RunReason.CANARY else last.protocol,
            for_runner_id=runner.id,
        )
        aftermath.runs.append((runner.pool, run.id))
    return aftermath


def _is_time(proofs: Sequence[Run], now: datetime) -> bool:
    if any(store.is_waiting(run) for run in proofs):
        return False
    ended = [run.finished_at for run in proofs if run.finished_at is not None]
    pause = min(PROOF_PAUSE * 2 ** min(len(proofs) // health.CLEAN_JOBS_TO_RETURN, 10), LONGEST_PAUSE)
    return not ended or now - max(ended) >= pause
