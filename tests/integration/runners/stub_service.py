"""A service of one process that keeps the runner's HTTP contract: claims, leases, heartbeats, idempotent reports."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pydantic import TypeAdapter

from service.contract import CONTRACT_VERSION, Heartbeat, RunnerRegistration, RunOrder, RunReason, RunReport

ORDER = TypeAdapter(RunOrder)
REPORT = TypeAdapter(RunReport)


def order(run_id: int, *, clone_url: str, sha: str, **more) -> RunOrder:
    fields = {
        "contract_version": CONTRACT_VERSION,
        "run_id": run_id,
        "attempt": 1,
        "lease_token": f"lease-{run_id}-1",
        "lease_s": 30.0,
        "repository": "acme/kernels",
        "clone_url": clone_url,
        "suite_path": "suite",
        "sha": sha,
        "reason": RunReason.PUSH,
    }
    return RunOrder(**(fields | more))


@dataclass
class StubService:
    """Runs wait in `queued`; what is claimed moves to `leased`, what is reported to `reports`."""

    queued: list[RunOrder] = field(default_factory=list)
    leased: dict[int, RunOrder] = field(default_factory=dict)
    reports: dict[tuple[int, int], RunReport] = field(default_factory=dict)
    claims: list[tuple[int | None, bool]] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    registrations: list[RunnerRegistration] = field(default_factory=list)
    spent_tokens: set[str] = field(default_factory=set)
    deliveries: int = 0
    hold: bool = True
    away: bool = False
    refuse_report_with: int | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with stub._lock:
                    status, answer = stub._answer(self.path, body, self.headers.get("Authorization", ""))
                payload = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def requeue(self, run_id: int) -> None:
        """What the service does when a lease runs out."""
        with self._lock:
            old = self.leased.pop(run_id)
            attempt = old.attempt + 1
            self.queued.append(replace(old, attempt=attempt, lease_token=f"lease-{run_id}-{attempt}"))

    def _answer(self, path: str, body: bytes, authorization: str) -> tuple[int, object]:
        if self.away:
            return 503, {"title": "away", "detail": "the database is being upgraded"}
        token = authorization.removeprefix("Bearer ")
        if path == "/api/v1/runners/register":
            if token in self.spent_tokens:
                return 409, {"title": "conflict", "detail": "this token has been used"}
            self.spent_tokens.add(token)
            self.registrations.append(TypeAdapter(RunnerRegistration).validate_json(body))
            return 201, {"runner_id": len(self.registrations), "token": "runner-token"}
        if token != "runner-token":
            return 401, {"title": "unauthorized", "detail": "unknown token"}
        if path == "/api/v1/runners/claim":
            return self._claim(json.loads(body)["run_id"])
        verb = path.rpartition("/")[2]
        if verb == "heartbeat":
            self.heartbeats.append(TypeAdapter(Heartbeat).validate_json(body))
            return 200, {"hold": self.hold}
        return self._take(REPORT.validate_json(body))

    def _claim(self, run_id: int | None) -> tuple[int, object]:
        for index, candidate in enumerate(self.queued):
            if run_id in {None, candidate.run_id}:
                del self.queued[index]
                self.leased[candidate.run_id] = candidate
                self.claims.append((run_id, True))
                return 200, ORDER.dump_python(candidate, mode="json")
        self.claims.append((run_id, False))
        return 204, None

    def _take(self, report: RunReport) -> tuple[int, object]:
        self.deliveries += 1
        if self.refuse_report_with is not None and (report.measurements or report.commit_failures):
            return self.refuse_report_with, {"title": "no", "detail": "measurements[0].value_s is not finite"}
        key = (report.run_id, report.attempt)
        if key in self.reports:
            return 200, {"stored": False}
        holder = self.leased.get(report.run_id)
        if holder is None or holder.lease_token != report.lease_token:
            return 409, {"title": "superseded", "detail": "another attempt owns the run"}
        self.reports[key] = report
        return 201, {"stored": True}
