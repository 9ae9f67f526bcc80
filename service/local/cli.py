"""`kernelwatch up`, `demo`, `doctor` and `migrate`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from service.local.errors import LocalError, StoppedError
from service.settings import Settings

data_dir_option = click.option(
    "--data-dir", type=click.Path(path_type=Path), default=None, help="Where everything is kept [KERNELWATCH_DATA_DIR]."
)
host_option = click.option("--host", default=None, help="Address to listen on [KERNELWATCH_HOST].")
port_option = click.option("--port", type=int, default=None, help="Port of the dashboard, 0 = any [KERNELWATCH_PORT].")


def _settings(**given: object) -> Settings:
    return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


@click.command()
@data_dir_option
@host_option
@port_option
@click.option("--pool", default="cpu", show_default=True, help="Pool of this machine's own runner.")
@click.option("--no-runner", is_flag=True, help="Start no runner.")
def up(*, data_dir: Path | None, host: str | None, port: int | None, pool: str, no_runner: bool) -> None:
    """Start the whole service on this machine: database, broker, web, worker, beat, mail catcher, one runner."""
    from service.local.stack import Stack, StackOptions
    from service.local.supervisor import terminal_says

    settings = _settings(data_dir=data_dir, host=host, port=port)
    options = StackOptions(pool=None if no_runner else pool)
    try:
        with Stack(settings, options, say=terminal_says) as stack:
            words = f"kernelwatch is up: {stack.addresses.web_url}\n"
            words += "" if settings.admin_token else f"sign in:           {stack.sign_in_url}\n"
            terminal_says(f"\n{words}logs:              {stack.logs}\nCtrl-C stops it.\n")
            stack.serve()
    except StoppedError as stopped:
        terminal_says(str(stopped))
    except LocalError as error:
        raise click.ClickException(str(error)) from error
    terminal_says("everything has stopped")


@click.command()
@data_dir_option
@host_option
@port_option
@click.option(
    "--exit/--stay", "leave", default=False, envvar="DEMO_EXIT", help="End after the table, or keep the site."
)
def demo(*, data_dir: Path | None, host: str | None, port: int | None, leave: bool) -> None:
    """Show the whole path: push planted commits to a real service and compare what it finds."""
    from service.local.demo.run import DemoEnd, run_demo

    settings = _settings(data_dir=data_dir, host=host, port=port)
    try:
        passed = run_demo(settings, end=DemoEnd.EXIT if leave else DemoEnd.STAY)
    except StoppedError as stopped:
        click.echo(str(stopped))
        passed = False
    except LocalError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(0 if passed else 1)


@click.command()
def doctor() -> None:
    """Check every dependency and say what is missing and what to do."""
    from service.local.doctor import Health, examine

    worst = Health.OK
    for finding in examine(Settings()):
        click.echo(f"{finding.health.value:<8}{finding.what}: {finding.detail}")
        if finding.advice:
            click.echo(f"{'':<8}-> {finding.advice}")
        if finding.health is Health.MISSING:
            worst = Health.MISSING
    sys.exit(1 if worst is Health.MISSING else 0)


@click.command()
def migrate() -> None:
    """Bring the database to the newest schema."""
    from service.store.engine import make_engine
    from service.store.schema import database_revision, upgrade

    url = Settings().database_url
    if not url:
        raise click.ClickException("DATABASE_URL is not set; `kernelwatch up` brings its own database and migrates it")
    engine = make_engine(url)
    try:
        upgrade(engine)
        click.echo(f"the schema is at {database_revision(engine)}")
    finally:
        engine.dispose()
