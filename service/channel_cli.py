"""`kernelwatch channel`: where a repository's alerts go, when they may come, and whether that works."""

from __future__ import annotations

from typing import Any

import click
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.admin_cli import ACTOR, database, repository_called
from service.domain.message import DeliveryError
from service.domain.severity import Severity
from service.domain.states import ChannelKind, Direction, NotificationEvent
from service.domain.timetable import timetable_of
from service.settings import Settings
from service.store import audit
from service.store.tables import Channel, Repository
from service.usecases import alert
from service.wiring import senders

REQUIRED = {
    ChannelKind.EMAIL: ("to",),
    ChannelKind.SLACK_WEBHOOK: ("url",),
    ChannelKind.SLACK_BOT: ("token", "channel"),
    ChannelKind.WEBHOOK: ("url", "secret"),
    ChannelKind.GITHUB_ISSUE: ("repository", "token"),
    ChannelKind.GITLAB_ISSUE: ("project", "token"),
}
DEFAULT_EVENTS = [event.value for event in NotificationEvent if event is not NotificationEvent.BIMODAL]


@click.group()
def channel() -> None:
    """Say where alerts go."""


@channel.command("add")
@click.argument("repository")
@click.argument("name")
@click.argument("kind", type=click.Choice([kind.value for kind in REQUIRED]))
@click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--min-severity",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.LOW.value,
    show_default=True,
)
@click.option("--improvements", is_flag=True, help="Tell of improvements as well.")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice([event.value for event in NotificationEvent]),
    help="Tell only of this; may be repeated.  [default: all but the weekly list, bimodal]",
)
@click.option("--quiet", default=None, metavar="HH:MM-HH:MM", help="Hold back in these hours; one digest at their end.")
@click.option("--daily", default=None, metavar="HH:MM", help="Hold back everything for one digest a day at this hour.")
@click.option("--zone", default=None, help="Time zone of these hours, like Europe/Berlin.  [default: UTC]")
@click.option("--fleet", is_flag=True, help="Tell only what the machines did, to whoever owns them.")
@click.option(
    "--owner", "owners", multiple=True, metavar="EMAIL=ID", help="How to mention an author: a Slack id, an @handle."
)
def channel_add(
    *,
    repository: str,
    name: str,
    kind: str,
    options: tuple[str, ...],
    min_severity: str,
    improvements: bool,
    events: tuple[str, ...],
    quiet: str | None,
    daily: str | None,
    zone: str | None,
    fleet: bool,
    owners: tuple[str, ...],
) -> None:
    """Send a REPOSITORY's alerts to a channel, e.g. `team email to=a@example.org,b@example.org`."""
    config = _config(ChannelKind(kind), options)
    config |= {key: value for key, value in (("quiet", quiet), ("daily", daily), ("zone", zone)) if value}
    if fleet:
        config["fleet"] = True
    if owners:
        config["owners"] = _pairs(owners, "--owner needs EMAIL=ID")
    try:
        timetable_of(config)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    directions = [Direction.REGRESSION.value] + [Direction.IMPROVEMENT.value] * improvements
    with database(Settings()) as session:
        owner = repository_called(session, repository)
        found = session.scalar(select(Channel).where(Channel.repository_id == owner.id, Channel.name == name))
        made = found or Channel(repository_id=owner.id, name=name)
        made.kind, made.config, made.min_severity, made.directions = kind, config, min_severity, directions
        made.events, made.enabled = list(events) or DEFAULT_EVENTS, True
        session.add(made)
        session.flush()
        audit.record(session, actor=ACTOR, action="add", subject=("channel", made.id), after={"kind": kind})
    click.echo(f"{name}: {'changed' if found else 'added'}; try it with `kernelwatch channel test {repository} {name}`")


def _config(kind: ChannelKind, options: tuple[str, ...]) -> dict[str, Any]:
    needs = f"{kind} needs {' '.join(f'{key}=…' for key in REQUIRED[kind])}"
    config: dict[str, Any] = dict(_pairs(options, needs))
    if any(key not in config for key in REQUIRED[kind]):
        raise click.ClickException(needs)
    if kind is ChannelKind.EMAIL:
        config["to"] = [address.strip() for address in config["to"].split(",")]
    return config


def _pairs(options: tuple[str, ...], complaint: str) -> dict[str, str]:
    pairs = [option.partition("=") for option in options]
    if not all(key and separator and value for key, separator, value in pairs):
        raise click.ClickException(complaint)
    return {key: value for key, _, value in pairs}


@channel.command("list")
def channel_list() -> None:
    """List the channels, without their secrets."""
    with database(Settings()) as session:
        rows = session.execute(select(Repository.name, Channel).join(Channel).order_by(Repository.name, Channel.name))
        for owner, row in rows:
            state = "on" if row.enabled else "off"
            when = timetable_of(row.config)
            directions = ",".join(row.directions)
            click.echo(f"{owner}\t{row.name}\t{row.kind}\t{state}\t{row.min_severity}\t{directions}\t{when}")


@channel.command("test")
@click.argument("repository")
@click.argument("name")
def channel_test(*, repository: str, name: str) -> None:
    """Send a made-up alert through a channel."""
    settings = Settings()
    with database(settings) as session:
        found = _called(session, repository, name)
        try:
            alert.try_channel(
                session,
                channel_id=found.id,
                senders=senders(settings),
                public_url=settings.public_url or f"http://{settings.host}:{settings.port}",
            )
        except DeliveryError as error:
            raise click.ClickException(f"it does not work: {error}") from error
    click.echo("sent")


@channel.command("off")
@click.argument("repository")
@click.argument("name")
def channel_off(*, repository: str, name: str) -> None:
    """Send nothing more to a channel; `channel add` turns it on again."""
    with database(Settings()) as session:
        found = _called(session, repository, name)
        found.enabled = False
        audit.record(session, actor=ACTOR, action="off", subject=("channel", found.id))
    click.echo(f"{name}: off")


def _called(session: Session, repository: str, name: str) -> Channel:
    owner = repository_called(session, repository)
    found = session.scalar(select(Channel).where(Channel.repository_id == owner.id, Channel.name == name))
    if found is None:
        raise click.ClickException(f"{repository} has no channel {name}")
    return found
