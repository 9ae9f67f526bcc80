"""The command line of each process: the same under `kernelwatch up` and in docker-compose.yml (a test compares them).

`python` is the interpreter of the environment that the service is installed in: PATH sees to that in both places.
"""

from __future__ import annotations

from pathlib import Path

Command = tuple[str, ...]

WEB_THREADS = 8


def migrate() -> Command:
    """Bring the database to the newest schema, then end."""
    return ("python", "-m", "service.cli", "migrate")


def web(*, host: str, port: int) -> Command:
    """The dashboard, the API and the webhooks: one process with threads, because pages wait for the database."""
    return (
        *("python", "-m", "gunicorn", "--bind", f"{host}:{port}"),
        *("--workers", "1", "--worker-class", "gthread", "--threads", str(WEB_THREADS)),
        *("--timeout", "60", "--graceful-timeout", "5", "--access-logfile", "-"),
        "service.wsgi:create()",
    )


def worker() -> Command:
    """Detection, bisection and delivery."""
    return (
        *("python", "-m", "celery", "--app", "service.celery_app", "worker"),
        *("--queues", "service", "--concurrency", "1", "--prefetch-multiplier", "1"),
        *("--without-gossip", "--without-mingle", "--loglevel", "INFO"),
    )


def beat(*, schedule: Path) -> Command:
    """The clock that finds what a crash or a lost message left undone. Two of them do no harm."""
    return ("python", "-m", "celery", "--app", "service.celery_app", "beat", "--schedule", str(schedule), "--pidfile=")


def register_runner(*, url: str, pool: str, name: str, device: str) -> Command:
    """Trade the registration token (KERNELWATCH_RUNNER_TOKEN) for the runner's own, then end."""
    options = ("--url", url, "--pool", pool, "--name", name, "--device", device)
    return ("python", "-m", "service.cli", "runner", "register", *options)


def runner() -> Command:
    """Measure what is queued for the pool."""
    return ("python", "-m", "service.cli", "runner", "serve")


def catcher(*, host: str, http_port: int, smtp_port: int) -> Command:
    """The local mail server and Slack receiver; its folder is KERNELWATCH_CATCHER_DIR."""
    ports = ("--http-port", str(http_port), "--smtp-port", str(smtp_port))
    return ("python", "-m", "service.local.catcher", "--host", host, *ports)
