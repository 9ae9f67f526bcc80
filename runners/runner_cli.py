"""`kernelwatch runner`: make this machine a runner, and serve a pool."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path

import click
import structlog

from runners.config import POLL_S

_GIB = 1 << 30


def _home(variable: str, xdg: str, fallback: str) -> Path:
    given = os.environ.get(variable)
    if given:
        return Path(given)
    return Path(os.environ.get(xdg) or Path.home() / fallback) / "kernelwatch"


def _default_state_dir() -> Path:
    return _home("KERNELWATCH_DATA_DIR", "XDG_DATA_HOME", ".local/share") / "runner"


def _default_cache_dir() -> Path:
    return _home("KERNELWATCH_CACHE_DIR", "XDG_CACHE_HOME", ".cache") / "runner"


def _default_lock_dir() -> Path:
    return Path(tempfile.gettempdir()) / "kernelwatch-locks"


def configure_logging() -> None:
    """Structured lines on standard error: for people, or JSON when KERNELWATCH_LOG_FORMAT says so."""
    level = getattr(logging, os.environ.get("KERNELWATCH_LOG_LEVEL", "INFO").upper(), logging.INFO)
    last: structlog.types.Processor
    if os.environ.get("KERNELWATCH_LOG_FORMAT") == "json":
        last = structlog.processors.JSONRenderer()
    else:
        last = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


state_dir_option = click.option(
    "--state-dir", type=click.Path(path_type=Path), default=_default_state_dir, help="Registration, spool, calibration."
)
cpu_option = click.option(
    "--cpu", type=int, default=None, help="Core to measure on (CPU pools); default: the last one."
)


@click.group()
def runner() -> None:
    """Measure for a service: register and serve a pool."""
    configure_logging()


@runner.command()
@click.option("--url", required=True, help="Address of the service.")
@click.option("--token", required=True, envvar="KERNELWATCH_RUNNER_TOKEN", help="One-time token of the service.")
@click.option("--pool", required=True, help="Pool to measure for.")
@click.option("--name", required=True, help="Name of this runner, unique in the service.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@cpu_option
@state_dir_option
def register(*, url: str, token: str, pool: str, name: str, device: str, cpu: int | None, state_dir: Path) -> None:
    """Trade a one-time token for this runner's own and keep it on disk."""
    from runners.client import ServiceClient
    from runners.device import open_device
    from runners.errors import RunnerError
    from runners.identity import RunnerIdentity
    from service.contract import RunnerRegistration

    client = ServiceClient(url, token)
    try:
        environment = open_device(device, state_dir=state_dir, cpu=cpu).environment()
        registration = RunnerRegistration(name, pool, environment.device, environment.comparable_key, environment.facts)
        given = client.register(registration)
    except RunnerError as error:
        raise click.ClickException(str(error)) from error
    finally:
        client.close()
    identity = RunnerIdentity(
        url=url, runner_id=given.runner_id, token=given.token, name=name, pool=pool, device=device
    )
    identity.save(state_dir)
    click.echo(f"runner {name} (number {given.runner_id}) measures for pool {pool}; kept in {state_dir}")


@runner.command()
@click.option("--broker-url", envvar="REDIS_URL", default=None, help="Broker that rings; without one the runner polls.")
@click.option("--poll-s", type=float, default=POLL_S, show_default=True, help="Seconds between polls.")
@click.option("--memory-gib", type=float, default=6.0, show_default=True, help="Memory one measured process may use.")
@click.option("--cache-dir", type=click.Path(path_type=Path), default=_default_cache_dir, help="Mirrors and builds.")
@click.option(
    "--lock-dir", type=click.Path(path_type=Path), default=_default_lock_dir, help="Shared by the host's runners."
)
@cpu_option
@state_dir_option
def serve(
    *,
    broker_url: str | None,
    poll_s: float,
    memory_gib: float,
    cache_dir: Path,
    lock_dir: Path,
    cpu: int | None,
    state_dir: Path,
) -> None:
    """Measure whatever is queued for this runner's pool, until stopped."""
    from runners.config import WorkerConfig
    from runners.errors import RunnerError
    from runners.worker import serve as serve_pool

    config = WorkerConfig(
        state_dir=state_dir,
        cache_dir=cache_dir,
        lock_dir=lock_dir,
        broker_url=broker_url,
        poll_s=poll_s,
        memory_bytes=int(memory_gib * _GIB),
        cpu=cpu,
    )
    try:
        serve_pool(config)
    except RunnerError as error:
        raise click.ClickException(str(error)) from error
