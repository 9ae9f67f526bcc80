"""`kernelwatch fleet`: how the runners stand, and quarantine and release by hand, straight in the database."""

from __future__ import annotations

import click
from sqlalchemy import select

from service.admin_cli import ACTOR, database
from service.domain.states import Standing
from service.settings import Settings
from service.store.pages.fleet import runner_rows
from service.store.tables import Runner
from service.usecases import standing
from service.wiring import utc_now


@click.group()
def fleet() -> None:
    """Show how the runners stand, quarantine and release them."""


@fleet.command("list")
def list_runners() -> None:
    """One line a runner: pool, name, standing, A/A share, and why it stands there."""
    with database(Settings()) as session:
        rows = runner_rows(session)
    for row in rows:
        aa = f"A/A {row.aa.alarms} of {row.aa.comparisons}" if row.aa else "no A/A"
        why = f"  {row.standing_reason}" if row.standing_reason else ""
        click.echo(f"{row.pool:<12} {row.name:<24} {row.standing:<12} {aa}{why}")


@fleet.command()
@click.argument("name")
@click.argument("reason")
def quarantine(name: str, reason: str) -> None:
    """Give the runner NAME no work until it is released."""
    _decide(name, Standing.QUARANTINED, reason)


@fleet.command()
@click.argument("name")
@click.argument("reason")
def release(name: str, reason: str) -> None:
    """Trust the runner NAME again; what it showed before counts no more."""
    _decide(name, Standing.TRUSTED, reason)


def _decide(name: str, wanted: Standing, reason: str) -> None:
    with database(Settings()) as session:
        runner_id = session.scalar(select(Runner.id).where(Runner.name == name))
        if runner_id is None:
            raise click.ClickException(f"there is no runner {name}; `kernelwatch fleet list` shows them")
        try:
            standing.decide(session, runner_id=runner_id, wanted=wanted, reason=reason, actor=ACTOR, now=utc_now())
        except standing.StandingRefusedError as error:
            raise click.ClickException(str(error)) from error
    click.echo(f"{name} is {wanted}")
