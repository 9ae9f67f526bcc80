"""`kernelwatch replay` and `kernelwatch policy`: try a detector or a policy on the stored history, then adopt it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta

import click
from sqlalchemy.orm import Session

from service.admin_cli import ACTOR, database
from service.settings import Settings
from service.store.tables import Repository
from service.usecases.adopt import Wish, adopt, as_plain, find, names_of, try_out
from service.usecases.policy import DetectionPolicy, PolicyError, with_overrides
from service.usecases.replay import CURRENT, DETECTORS, Replay, replay
from service.wiring import utc_now

SHOWN = 40


def _repository(session: Session, name: str) -> Repository:
    try:
        return find(session, name)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error


def _policy(settings: Settings, repository: Repository) -> DetectionPolicy:
    return with_overrides(DetectionPolicy(min_effect=settings.min_effect), repository.settings)


def _print(outcome: Replay, names: Mapping[int, tuple[str, str]]) -> None:
    click.echo(
        f"{outcome.detector} over {outcome.series} series, {outcome.points} points: "
        f"{outcome.count('kept')} kept, {outcome.count('lost')} lost, {outcome.count('new')} new"
    )
    changed = [difference for difference in outcome.differences if difference.kind != "kept"]
    for difference in changed[:SHOWN]:
        size = f"{difference.effect * 100:+7.1f} %"
        sha, subject = names.get(difference.position, ("", ""))
        click.echo(f"  {difference.kind:<4} {size}  {sha[:9]}  {subject[:40]:<40}  {difference.workload}")
    if len(changed) > SHOWN:
        click.echo(f"  ... and {len(changed) - SHOWN} more (--json shows all)")


@click.command(name="replay")
@click.argument("repository")
@click.option("--detector", default=CURRENT, show_default=True, type=click.Choice(sorted(DETECTORS)))
@click.option("--days", type=click.IntRange(min=1), help="Only commits measured in the last DAYS days.")
@click.option("--min-effect", type=float, help="Another relative floor than the repository's.")
@click.option("--json", "as_json", is_flag=True, help="Print every step as JSON.")
def replay_command(repository: str, detector: str, days: int | None, min_effect: float | None, as_json: bool) -> None:  # noqa: FBT001
    """Run a detector over the stored history in shadow and show what would change. Nothing is written."""
    settings = Settings()
    since = utc_now() - timedelta(days=days) if days else None
    try:
        with database(settings) as session:
            found = _repository(session, repository)
            policy = _policy(settings, found)
            if min_effect is not None:
                policy = replace(policy, min_effect=min_effect, workloads={})
            outcome = replay(session, repository_id=found.id, since=since, policy=policy, detector=detector)
            names = names_of(session, repository_id=found.id, outcome=outcome)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(asdict(outcome)))
    else:
        _print(outcome, names)


@click.group()
def policy() -> None:
    """What counts as a change in a repository, and in single workloads."""


@policy.command()
@click.argument("repository")
def show(repository: str) -> None:
    """Print the policy that is in force."""
    settings = Settings()
    with database(settings) as session:
        current = _policy(settings, _repository(session, repository))
    click.echo(json.dumps(as_plain(current), indent=2))


@policy.command(name="set")
@click.argument("repository")
@click.option("--min-effect", type=float, help="Relative change below which nothing is suspected, e.g. 0.03.")
@click.option("--confidence", type=float, help="How sure a confirmation must be, e.g. 0.99.")
@click.option("--workload", help="Shell pattern over workload keys; without it the whole repository.")
@click.option("--yes", is_flag=True, help="Save without asking.")
def set_policy(
    repository: str,
    min_effect: float | None,
    confidence: float | None,
    workload: str | None,
    yes: bool,  # noqa: FBT001
) -> None:
    """Show what a policy would have done to the last 90 days, then save it."""
    wish = Wish(repository=repository, min_effect=min_effect, confidence=confidence, workload=workload)
    if not wish.values:
        raise click.UsageError("name at least one of --min-effect and --confidence")
    settings = Settings()
    default = DetectionPolicy(min_effect=settings.min_effect)
    try:
        with database(settings) as session:
            trial = try_out(session, wish, default=default, now=utc_now())
            _print(trial.outcome, trial.names)
            if not yes:
                click.confirm("Save it?", abort=True)
            adopt(session, wish, default=default, actor=ACTOR)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error
    click.echo("saved")
