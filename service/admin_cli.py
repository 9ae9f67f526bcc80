"""`kernelwatch repo` and `token`: what an operator sets up, straight in the database."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.adapters.git import GitMirrors, check_clone_url
from service.domain.states import MeasurePolicy
from service.settings import Settings
from service.store import audit, repositories
from service.store.engine import make_engine, make_sessions
from service.store.tables import ApiToken, Repository
from service.usecases.intake import place_line
from service.usecases.ports import MirrorError
from service.web.auth import hash_token, new_token
from service.wiring import utc_now

ACTOR = "cli"
FETCH_S = 300.0


@contextmanager
def database(settings: Settings) -> Iterator[Session]:
    """One transaction on the database of the settings, or on that of a running `kernelwatch up`."""
    engine = make_engine(settings.database_url or _embedded_url(settings), application_name="kernelwatch-cli")
    try:
        with make_sessions(engine).begin() as session:
            yield session
    finally:
        engine.dispose()


def _embedded_url(settings: Settings) -> str:
    from service.local.postgres import EmbeddedPostgres

    addresses: Path = settings.data_dir / "addresses.json"
    if not addresses.is_file():
        raise click.ClickException("set DATABASE_URL, or start the service with `kernelwatch up` first")
    port = json.loads(addresses.read_text()).get("database")
    return EmbeddedPostgres(settings.data_dir / "postgres", port=port).url()


def repository_called(session: Session, name: str) -> Repository:
    """Return the repository of that name, or end with a sentence."""
    found = repositories.by_name(session, name=name)
    if found is None:
        raise click.ClickException(f"there is no repository {name}; `kernelwatch repo list` shows them")
    return found


# -- repo -----------------------------------------------------------------------------------------------------------


@click.group()
def repo() -> None:
    """Register and list the repositories whose kernels are measured."""


@repo.command("add")
@click.argument("name")
@click.argument("clone_url")
@click.option("--branch", default="main", show_default=True, help="Branch whose first-parent line is measured.")
@click.option("--suite-path", default="kernels_under_test", show_default=True, help="Folder of the suite.")
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in MeasurePolicy]),
    default=MeasurePolicy.TIP.value,
    show_default=True,
)
@click.option("--pool", "pools", multiple=True, default=("cpu",), show_default=True, help="May be repeated.")
@click.option("--watch", "watched", multiple=True, help="Further path that can change a kernel; may be repeated.")
@click.option("--build", "build_command", default=None, help="Command to run in the checkout first.")
@click.option("--time-limit", "time_limit_s", type=click.FloatRange(min=1), default=600.0, show_default=True)
@click.option("--secret", default=None, help="Webhook secret; made up when not given.")
def repo_add(
    *,
    name: str,
    clone_url: str,
    branch: str,
    suite_path: str,
    policy: str,
    pools: tuple[str, ...],
    watched: tuple[str, ...],
    build_command: str | None,
    time_limit_s: float,
    secret: str | None,
) -> None:
    """Measure the repository NAME ("owner/name", as the forge calls it) found at CLONE_URL."""
    settings = Settings()
    try:
        check_clone_url(clone_url)
    except MirrorError as error:
        raise click.ClickException(str(error)) from error
    webhook_secret = secret or secrets.token_hex(24)
    with database(settings) as session:
        made = repositories.insert_repository(
            session,
            name=name,
            clone_url=clone_url,
            default_branch=branch,
            suite_path=suite_path.strip("/"),
            measure_policy=policy,
            pools=list(pools),
            watched_paths=list(watched),
            build_command=build_command,
            time_limit_s=time_limit_s,
            webhook_secret=webhook_secret,
        )
        if made is None:
            raise click.ClickException(f"{name} is registered already; change it with `kernelwatch repo set`")
        audit.record(session, actor=ACTOR, action="add", subject=("repository", made.id), after={"name": name})
        known = _read_history(session, made, settings)
    base = (settings.public_url or f"http://{settings.host}:{settings.port}").rstrip("/")
    click.echo(f"{name}: {known}")
    click.echo(f"webhook URL     {base}/webhooks/github  (content type application/json, event: push)")
    click.echo(f"webhook secret  {webhook_secret}")


def _read_history(session: Session, made: Repository, settings: Settings) -> str:
    """Fetch once, so that a wrong address shows now; an unreachable remote is no reason not to register."""
    mirror = GitMirrors(settings.cache_dir / "mirrors").open(repository_id=made.id, clone_url=made.clone_url)
    try:
        mirror.sync(timeout_s=FETCH_S)
        tip = place_line(session, repository=made, mirror=mirror)
    except MirrorError as error:
        return f"registered, but it cannot be fetched yet: {error}"
    if tip is None:
        return f"registered; it has no branch {made.default_branch} yet"
    return f"registered; {made.default_branch} is at {tip[:12]}"


@repo.command("list")
def repo_list() -> None:
    """List the repositories."""
    with database(Settings()) as session:
        for found in repositories.all_of_them(session):
            pools = ",".join(found.pools)
            click.echo(f"{found.name}\t{found.clone_url}\t{found.default_branch}\t{found.measure_policy}\t{pools}")


@repo.command("set")
@click.argument("name")
@click.option("--clone-url", default=None)
@click.option("--branch", "default_branch", default=None)
@click.option("--suite-path", default=None)
@click.option("--policy", "measure_policy", type=click.Choice([policy.value for policy in MeasurePolicy]), default=None)
@click.option("--pool", "pools", multiple=True)
@click.option("--watch", "watched_paths", multiple=True)
@click.option("--build", "build_command", default=None)
@click.option("--time-limit", "time_limit_s", type=click.FloatRange(min=1), default=None)
@click.option("--secret", "webhook_secret", default=None)
@click.option("--nightly/--no-nightly", default=None, help="Measure the tip every night with the long tier.")
def repo_set(*, name: str, nightly: bool | None, **given: Any) -> None:
    """Change what is said of the repository NAME; options that are not given stay."""
    changes = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in given.items()
        if value not in {None, ()}
    }
    with database(Settings()) as session:
        found = repository_called(session, name)
        if "clone_url" in changes:
            try:
                check_clone_url(str(changes["clone_url"]))
            except MirrorError as error:
                raise click.ClickException(str(error)) from error
        for key, value in changes.items():
            setattr(found, key, value)
        if nightly is not None:
            found.settings = {**found.settings, "nightly": nightly}
        shown = {key: value for key, value in changes.items() if key != "webhook_secret"}
        audit.record(session, actor=ACTOR, action="set", subject=("repository", found.id), after=shown)
    click.echo(f"{name}: changed")


# -- token ----------------------------------------------------------------------------------------------------------


@click.group()
def token() -> None:
    """Create and revoke API tokens."""


@token.command("create")
@click.argument("name")
@click.option("--scope", type=click.Choice(["read", "write", "register"]), required=True)
@click.option("--pool", default=None, help="Hold a registration token to one pool.")
@click.option("--days", type=click.IntRange(min=1, max=3650), default=None, help="Let it end after so many days.")
def token_create(*, name: str, scope: str, pool: str | None, days: int | None) -> None:
    """Create a token; it is shown once. Scope `register`: good for registering one runner."""
    if pool is not None and scope != "register":
        raise click.ClickException("--pool goes with --scope register")
    made = new_token(scope)
    with database(Settings()) as session:
        row = ApiToken(name=name, token_hash=hash_token(made), scope=scope, pool=pool)
        row.expires_at = None if days is None else utc_now() + timedelta(days=days)
        session.add(row)
        session.flush()
        audit.record(session, actor=ACTOR, action="create", subject=("api_token", row.id), after={"scope": scope})
    click.echo(made)


@token.command("list")
def token_list() -> None:
    """List the tokens; only their names and scopes are known."""
    with database(Settings()) as session:
        for row in session.scalars(select(ApiToken).order_by(ApiToken.id)):
            state = "revoked" if row.revoked_at else "used" if row.used_at else "valid"
            click.echo(f"{row.id}\t{row.name}\t{row.scope}\t{state}")


@token.command("revoke")
@click.argument("name")
def token_revoke(*, name: str) -> None:
    """Revoke every token called NAME."""
    with database(Settings()) as session:
        revoked = session.scalars(
            update(ApiToken)
            .where(ApiToken.name == name, ApiToken.revoked_at.is_(None))
            .values(revoked_at=utc_now())
            .returning(ApiToken.id)
        ).all()
        for token_id in revoked:
            audit.record(session, actor=ACTOR, action="revoke", subject=("api_token", token_id))
    if not revoked:
        raise click.ClickException(f"there is no valid token called {name}")
    click.echo(f"revoked {len(revoked)}")
