"""The whole service on one machine: servers, migrations, processes, in the order in which they need each other.

DATABASE_URL and REDIS_URL replace the embedded servers. Addresses and secrets are remembered in the data folder, so
that links in old messages and a runner's registration still hold after a restart; a remembered port that is taken
meanwhile is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from service.local import commands
from service.local.broker import EmbeddedBroker
from service.local.errors import StartError, StoppedError
from service.local.placement import make_private
from service.local.postgres import EmbeddedPostgres
from service.local.processes import exclusive, free_port, port_is_free, tail
from service.local.supervisor import ChildProcess, EmbeddedServer, ProcessSpec, Supervisor
from service.settings import Settings

READY_S = 90.0
PATIENCE_S = 8.0
SECRETS = ("admin_token", "runner_token")
NOT_FOR_RUNNERS = ("DATABASE_URL", "KERNELWATCH_ADMIN_TOKEN")  # a runner executes other people's code


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What to start. `pool` = None starts no runner."""

    pool: str | None = "cpu"
    catcher: bool = True


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything answers."""

    database_url: str
    redis_url: str
    web_url: str
    catcher_url: str | None
    smtp_url: str | None


class Stack:
    """Started as a context manager; `serve` keeps it alive until told to stop."""

    def __init__(self, settings: Settings, options: StackOptions, *, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._options = options
        self._say = say
        self._began = time.monotonic()
        self._held = contextlib.ExitStack()
        self._memory = Memory(settings.data_dir / "addresses.json")
        self._secrets = Memory(settings.data_dir / "secrets.json")
        self.supervisor = Supervisor(say=self.tell)
        self.logs = settings.data_dir / "logs"

    def __enter__(self) -> Self:
        self.supervisor.listen()
        try:
            self.addresses = self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def serve(self, finished: Callable[[], bool] = lambda: False) -> None:
        """Keep every process alive until `finished()`, Ctrl-C or SIGTERM."""
        self.supervisor.run(finished)

    def stop(self) -> None:
        """Stop everything in order and give the data folder back."""
        self.supervisor.stop_all()
        self._held.close()

    def tell(self, text: str) -> None:
        """Say something with the time since the start before it."""
        self._say(f"{time.monotonic() - self._began:6.1f} s  {text}")

    @property
    def sign_in_url(self) -> str:
        """Where to sign in; the token stands behind the #, which a browser keeps to itself."""
        return f"{self.addresses.web_url}/sign-in#{self._variables['KERNELWATCH_ADMIN_TOKEN']}"

    def environment(self, without: tuple[str, ...] = ()) -> dict[str, str]:
        """What a process of the service needs to know, less what it must not know."""
        return {name: value for name, value in {**os.environ, **self._variables}.items() if name not in without}

    # -- the start, step by step -----------------------------------------------------------------------------------

    def _start(self) -> Addresses:
        settings = self._settings
        make_private(settings.data_dir)
        for folder in (self.logs, settings.data_dir / "messages"):
            folder.mkdir(exist_ok=True, mode=0o700)
        self._held.enter_context(exclusive(settings.data_dir / "lock", what=f"the data folder {settings.data_dir}"))
        # 1. The servers.
        database_url = settings.database_url or self._start_database()
        redis_url = settings.redis_url or self._start_broker()
        # 2. Addresses of what follows.
        web_port = self._web_port()
        addresses = Addresses(
            database_url=database_url,
            redis_url=redis_url,
            web_url=settings.public_url or f"http://{_dialled(settings.host)}:{web_port}",
            catcher_url=f"http://127.0.0.1:{self._port('messages')}" if self._options.catcher else None,
            smtp_url=f"smtp://127.0.0.1:{self._port('mail')}" if self._options.catcher else None,
        )
        self._variables = self._describe(addresses, web_port)
        # 3. The schema.
        self._run_once("migrate", commands.migrate())
        self.tell("database   schema is up to date")
        # 4. The processes.
        if self._options.catcher:
            self._start_catcher()
        self._add("web", commands.web(host=settings.host, port=web_port))
        self._add("worker", commands.worker(), stop_signal=signal.SIGQUIT)
        self._add("beat", commands.beat(schedule=settings.data_dir / "beat"))
        local_url = f"http://{_dialled(settings.host)}:{web_port}"
        self._await_answer("web", f"{local_url}/readyz")
        self.tell(f"web        {addresses.web_url}")
        # 5. The runner, over HTTP like any other.
        if self._options.pool is not None:
            self._start_runner(self._options.pool, url=local_url)
        return addresses

    def _start_database(self) -> str:
        server = EmbeddedPostgres(self._settings.data_dir / "postgres", port=self._memory.number("database"))
        member = EmbeddedServer("database", server)
        self.supervisor.add(member)
        self._memory.keep("database", server.port)
        self.tell(f"database   embedded Postgres at 127.0.0.1:{server.port}")
        return server.url()

    def _start_broker(self) -> str:
        server = EmbeddedBroker(self._settings.data_dir / "broker", port=self._memory.number("broker"))
        member = EmbeddedServer("broker", server)
        self.supervisor.add(member)
        self._memory.keep("broker", server.port)
        self.tell(f"broker     embedded Valkey at 127.0.0.1:{server.port}")
        return server.url()

    def _start_catcher(self) -> None:
        http_port, smtp_port = self._memory.number("messages"), self._memory.number("mail")
        assert http_port is not None
        assert smtp_port is not None
        self._add("catcher", commands.catcher(host="127.0.0.1", http_port=http_port, smtp_port=smtp_port))
        self._await_answer("catcher", f"http://127.0.0.1:{http_port}/healthz")
        self.tell(f"messages   http://127.0.0.1:{http_port} (mail and Slack messages end here)")

    def _start_runner(self, pool: str, *, url: str) -> None:
        name = f"{socket.gethostname().split('.')[0] or 'local'}-{pool}"
        register = commands.register_runner(url=url, pool=pool, name=name, device="cpu")
        self._run_once("runner-register", register, without=NOT_FOR_RUNNERS)
        self._add("runner", commands.runner(), without=(*NOT_FOR_RUNNERS, "KERNELWATCH_RUNNER_TOKEN"))
        self.tell(f"runner     {name} measures for pool {pool}")

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _web_port(self) -> int:
        """The port of the settings; if nobody chose it and it is taken, another."""
        wanted = self._settings.port
        if wanted and "port" in self._settings.model_fields_set and not port_is_free(wanted):
            raise StartError(f"port {wanted} is taken: stop the program that has it, or choose another port")
        return self._port("web", wanted=wanted)

    def _port(self, name: str, *, wanted: int | None = None) -> int:
        """The wanted port if it is free, else the remembered one, else any."""
        for port in (wanted, self._memory.number(name)):
            if port and port_is_free(port):
                break
        else:
            port = free_port()
        self._memory.keep(name, port)
        return port

    def _describe(self, addresses: Addresses, web_port: int) -> dict[str, str]:
        settings = self._settings
        variables = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
            "DATABASE_URL": addresses.database_url,
            "REDIS_URL": addresses.redis_url,
            "KERNELWATCH_DATA_DIR": str(settings.data_dir),
            "KERNELWATCH_CACHE_DIR": str(settings.cache_dir),
            "KERNELWATCH_HOST": settings.host,
            "KERNELWATCH_PORT": str(web_port),
            "KERNELWATCH_PUBLIC_URL": addresses.web_url,
            "KERNELWATCH_EMBEDDED": "true",
            "KERNELWATCH_CATCHER_DIR": str(settings.data_dir / "messages"),
        }
        if settings.smtp_url is None and addresses.smtp_url is not None:
            variables["KERNELWATCH_SMTP_URL"] = addresses.smtp_url
        if settings.catcher_url is None and addresses.catcher_url is not None:
            variables["KERNELWATCH_CATCHER_URL"] = addresses.catcher_url
        for name in SECRETS:
            given = getattr(settings, name)
            variables[f"KERNELWATCH_{name.upper()}"] = given.get_secret_value() if given else self._secrets.secret(name)
        return variables

    def _add(
        self,
        name: str,
        command: commands.Command,
        *,
        stop_signal: signal.Signals = signal.SIGTERM,
        without: tuple[str, ...] = (),
    ) -> None:
        spec = ProcessSpec(name, command, self.environment(without), stop_signal, PATIENCE_S)
        self.supervisor.add(ChildProcess(spec, logs=self.logs))

    def _run_once(self, name: str, command: commands.Command, *, without: tuple[str, ...] = ()) -> None:
        child = ChildProcess(ProcessSpec(name, command, self.environment(without)), logs=self.logs)
        child.start()
        try:
            while (status := child.poll()) is None:
                self._check_stop()
                time.sleep(0.02)
        finally:
            child.stop()
        if status != 0:
            raise StartError(f"{name} failed with status {status}; the end of {child.log}:\n{tail(child.log)}")

    def _await_answer(self, name: str, url: str) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            self._check_stop()
            self.supervisor.tick()
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(url, timeout=5.0, trust_env=False).status_code == httpx.codes.OK:
                    return
            time.sleep(0.1)
        log = self.logs / f"{name}.log"
        raise StartError(f"{name} does not answer at {url}; the end of {log}:\n{tail(log)}")

    def _check_stop(self) -> None:
        if self.supervisor.stopping:
            raise StoppedError("stopped before everything was up")


class Memory:
    """A small JSON file of what must stay the same over restarts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def number(self, name: str) -> int | None:
        """A remembered number."""
        value = self._all().get(name)
        return value if isinstance(value, int) else None

    def secret(self, name: str) -> str:
        """A random text, made on first use."""
        value = self._all().get(name)
        if not isinstance(value, str):
            value = secrets.token_urlsafe(32)
            self.keep(name, value)
        return value

    def keep(self, name: str, value: int | str | None) -> None:
        """Remember a value, readable by its owner only."""
        partial = self._path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
        partial.write_text(json.dumps({**self._all(), name: value}, indent=1))
        partial.rename(self._path)

    def _all(self) -> Mapping[str, object]:
        try:
            found = json.loads(self._path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):  # a damaged file only costs the old numbers
            return {}
        return found if isinstance(found, dict) else {}


def _dialled(host: str) -> str:
    """The address at which to reach a server that listens on `host`."""
    return "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host  # noqa: S104  # compared, not bound
