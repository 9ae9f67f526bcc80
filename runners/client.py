"""The runner's only view of the service: claim, heartbeat, report and register over HTTP with its own token.

Two kinds of trouble: the service is away (no connection, 5xx, 429: try again later) or it refuses (4xx: trying again
changes nothing). Bodies are the contract's dataclasses as JSON.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import httpx
from pydantic import TypeAdapter, ValidationError

from runners.errors import RunnerError
from service.contract import CONTRACT_VERSION, FailureKind, Heartbeat, RunnerRegistration, RunOrder, RunReport

API = "/api/v1"
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 8.0

_order = TypeAdapter(RunOrder)
_report = TypeAdapter(RunReport)
_heartbeat = TypeAdapter(Heartbeat)
_registration = TypeAdapter(RunnerRegistration)


class ServiceAwayError(RunnerError):
    """The service cannot be reached or cannot answer now."""

    kind = FailureKind.TRANSIENT


class ServiceRefusedError(RunnerError):
    """The service understood and said no; `status` is the HTTP status."""

    kind = FailureKind.PERMANENT

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the service refused with {status}: {detail}")
        self.status = status
        self.detail = detail


class ReportOutcome(StrEnum):
    """What the service did with a report; after each of them the runner may forget it."""

    STORED = "stored"
    ALREADY_STORED = "already_stored"
    SUPERSEDED = "superseded"


_OUTCOMES = {
    201: ReportOutcome.STORED,
    200: ReportOutcome.ALREADY_STORED,
    409: ReportOutcome.SUPERSEDED,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the service takes this runner for."""

    runner_id: int
    token: str


def dump_report(report: RunReport) -> bytes:
    """A report as the JSON that travels."""
    return _report.dump_json(report)


def load_report(body: bytes) -> RunReport:
    """The reverse of `dump_report`; ValueError when the bytes are not a report."""
    return _report.validate_json(body)


class ServiceClient:
    """One connection pool to one service; safe to use from two threads."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        attempts: int = 4,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._attempts = attempts
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            trust_env=False,
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def register(self, registration: RunnerRegistration) -> Identity:
        """Trade the one-time token (given as this client's token) for the runner's own."""
        answer = self._post("/runners/register", _registration.dump_json(registration), accept=(201,))
        body = _object(answer)
        return Identity(runner_id=int(body["runner_id"]), token=str(body["token"]))

    def claim(self, run_id: int | None) -> RunOrder | None:
        """Lease run `run_id`, or with None any queued run of the pool; None when there is nothing to do."""
        body = b'{"run_id":null}' if run_id is None else b'{"run_id":%d}' % run_id
        answer = self._post("/runners/claim", body, accept=(200, 204))
        if answer.status_code == 204:
            return None
        try:
            order = _order.validate_json(answer.content)
        except ValidationError as error:
            raise ServiceRefusedError(200, f"its order does not fit the contract: {error}") from error
        if order.contract_version != CONTRACT_VERSION:
            raise ServiceRefusedError(
                200, f"it speaks contract version {order.contract_version}, this runner {CONTRACT_VERSION}: update it"
            )
        return order

    def heartbeat(self, beat: Heartbeat) -> bool:
        """Extend the lease; False when this runner no longer holds it."""
        path = f"/runs/{beat.run_id}/heartbeat"
        return bool(_object(self._post(path, _heartbeat.dump_json(beat), accept=(200,), attempts=1)).get("hold"))

    def report(self, run_id: int, body: bytes) -> ReportOutcome:
        """Hand in a report (the bytes of `dump_report`); ServiceRefusedError with 422 when it cannot be stored."""
        answer = self._post(f"/runs/{run_id}/report", body, accept=tuple(_OUTCOMES))
        return _OUTCOMES[answer.status_code]

    def _post(self, path: str, body: bytes, *, accept: tuple[int, ...], attempts: int | None = None) -> httpx.Response:
        """POST with retries for as long as the service is only away; waits double, with jitter."""
        total = attempts or self._attempts
        wait_s = FIRST_WAIT_S
        for attempt in range(1, total + 1):
            try:
                answer = self._http.post(API + path, content=body, headers={"Content-Type": "application/json"})
            except httpx.TransportError as error:
                trouble = ServiceAwayError(f"no connection to {self._http.base_url}: {error}")
            else:
                if answer.status_code in accept:
                    return answer
                if answer.status_code < 500 and answer.status_code != 429:
                    raise ServiceRefusedError(answer.status_code, _detail(answer))
                trouble = ServiceAwayError(f"the service answered {answer.status_code}: {_detail(answer)}")
            if attempt == total:
                raise trouble
            self._sleep(wait_s * self._rng.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        raise AssertionError("unreachable: the loop returns or raises")


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError as error:
        raise ServiceAwayError("the service's answer is not JSON: is the address right?") from error
    if not isinstance(body, dict):
        raise ServiceAwayError("the service's answer is not a JSON object: is the address right?")
    return body


def _detail(answer: httpx.Response) -> str:
    """The sentence of a problem+json body, or the beginning of whatever came."""
    try:
        body = answer.json()
    except ValueError:
        return answer.text[:200]
    if isinstance(body, dict):
        return str(body.get("detail") or body.get("title") or "no reason given")
    return str(body)[:200]
