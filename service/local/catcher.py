"""A local mail server and Slack receiver that keeps what it gets and shows it on a page.

It speaks enough of each protocol for the service to be used in earnest without an account anywhere: SMTP; Slack's
incoming webhooks (`POST /slack/<channel>` answers `ok`); Slack's Web API (`POST /api/chat.postMessage` answers with a
`ts`, so that replies join their thread); and any JSON webhook (`POST /hook/<name>`). A message is on disk before its
sender hears that it was accepted. One that comes again under its key (Message-ID, Idempotency-Key, Slack metadata) is
the same message: its sender died before it had written down the first answer. Run as `python -m service.local.catcher`.
"""

from __future__ import annotations

import base64
import email
import email.policy
import itertools
import json
import os
import signal
import threading
import time
from dataclasses import asdict, dataclass, field
from email.message import EmailMessage
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from flask import Blueprint, Flask, Response, abort, jsonify, render_template, request, url_for
from werkzeug.exceptions import HTTPException
from werkzeug.serving import make_server

from service.local.caught import framed, linked

PAGE_LIMIT = 200
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # an SVG could carry a script


class MessageKind(StrEnum):
    """How a message arrived."""

    EMAIL = "email"
    SLACK = "slack"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True)
class CaughtMessage:
    """One message as it is stored and shown."""

    number: int
    kind: MessageKind
    received_at: float  # POSIX seconds
    to: str
    title: str
    text: str
    html: str | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    key: str | None = None  # the sender's own name for the message
    parts: dict[str, dict[str, str]] = field(default_factory=dict)  # by Content-ID: its type, and its data in base 64


class MessageStore:
    """Messages as numbered JSON files in a folder: durable, readable by hand, safe for threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        last = max((int(path.stem) for path in folder.glob("[0-9]*.json")), default=0)
        self._numbers = itertools.count(last + 1)
        self._lock = threading.Lock()
        self._numbers_by_key = {(m.kind, m.to, m.key): m.number for m in self.all() if m.key}

    def keep(
        self, *, kind: MessageKind, to: str, title: str, text: str, key: str | None = None, **more: Any
    ) -> CaughtMessage:
        """Write one message so that it survives a power cut; the first one is returned if its key has come before."""
        with self._lock:
            known = self._numbers_by_key.get((kind, to, key)) if key else None
            if known is not None and (first := self.get(known)):
                return first
            message = CaughtMessage(
                number=next(self._numbers),
                kind=kind,
                received_at=time.time(),
                to=to,
                title=title,
                text=text,
                key=key,
                **more,
            )
            final = self.folder / f"{message.number:06d}.json"
            partial = final.with_suffix(".partial")
            with partial.open("w") as stream:
                json.dump(asdict(message), stream)
                stream.flush()
                os.fsync(stream.fileno())
            partial.rename(final)
            if key:
                self._numbers_by_key[kind, to, key] = message.number
        return message

    def all(self) -> list[CaughtMessage]:
        """Every message, oldest first."""
        return [self._load(path) for path in sorted(self.folder.glob("[0-9]*.json"))]

    def get(self, number: int) -> CaughtMessage | None:
        """One message by its number."""
        path = self.folder / f"{number:06d}.json"
        return self._load(path) if path.is_file() else None

    @staticmethod
    def _load(path: Path) -> CaughtMessage:
        found = json.loads(path.read_text())
        return CaughtMessage(**{**found, "kind": MessageKind(found["kind"])})


class MailHandler:
    """What aiosmtpd calls when a mail has arrived."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: ARG002, N802
        """Store the mail, then accept it."""
        raw = envelope.content if isinstance(envelope.content, bytes) else (envelope.content or "").encode()
        mail = email.message_from_bytes(raw, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self._store.keep(
            kind=MessageKind.EMAIL,
            to=", ".join(envelope.rcpt_tos),
            title=str(mail["subject"] or "(no subject)"),
            text=_part(mail, "plain") or "",
            html=_part(mail, "html"),
            headers={name: str(value) for name, value in mail.items()},
            key=mail["message-id"],
            parts=_pictures(mail),
        )
        return "250 OK"


def _part(mail: EmailMessage, kind: str) -> str | None:
    body = mail.get_body(preferencelist=(kind,))
    return str(body.get_content()) if body is not None else None


def _pictures(mail: EmailMessage) -> dict[str, dict[str, str]]:
    """The pictures that came with a mail, by Content-ID."""
    return {
        str(part["content-id"]).strip().strip("<>"): {
            "type": part.get_content_type(),
            "data": base64.b64encode(part.get_content()).decode(),
        }
        for part in mail.walk()
        if part["content-id"] and part.get_content_type() in PICTURES
    }


def create_app(store: MessageStore) -> Flask:
    """The receiver and the page."""
    app = Flask(__name__, static_folder=None)
    app.register_blueprint(_slack(store))
    app.register_blueprint(_webhooks(store))
    app.register_blueprint(_pages(store))
    app.register_error_handler(HTTPException, _refusal)
    return app


def _refusal(error: HTTPException) -> tuple[str | dict[str, Any], int]:
    """What is not here: a page for a browser, JSON for a program."""
    if request.accept_mimetypes.best_match(["application/json", "text/html"]) == "text/html":
        return render_template("catcher_error.html", title=error.name, path=request.path), error.code or 500
    return {"ok": False, "error": error.name.lower().replace(" ", "_")}, error.code or 500


def _json_object() -> dict[str, Any] | None:
    body = request.get_json(force=True, silent=True)
    return body if isinstance(body, dict) else None


def _has_words(body: dict[str, Any]) -> bool:
    return any(body.get(part) for part in ("text", "blocks", "attachments"))


def _slack(store: MessageStore) -> Blueprint:
    """Slack's two doors, with its own words for what it refuses."""
    routes = Blueprint("slack", __name__)

    @routes.post("/slack/<path:channel>")
    def incoming(channel: str) -> tuple[str, int]:
        body = _json_object()
        if body is None:
            return "invalid_payload", 400
        if not _has_words(body):
            return "no_text", 400
        keep_slack(store, f"#{channel}", body)
        return "ok", 200

    @routes.post("/api/chat.postMessage")
    def post_message() -> dict[str, Any]:
        body = _json_object() or request.form.to_dict()
        if not request.headers.get("Authorization", "").startswith("Bearer "):
            return {"ok": False, "error": "not_authed"}
        if not body.get("channel"):
            return {"ok": False, "error": "channel_not_found"}
        if not _has_words(body):
            return {"ok": False, "error": "no_text"}
        kept = keep_slack(store, str(body["channel"]), body)
        return {"ok": True, "channel": body["channel"], "ts": f"{int(kept.received_at)}.{kept.number:06d}"}

    return routes


def _webhooks(store: MessageStore) -> Blueprint:
    """Any JSON object, kept with its headers less the credentials."""
    routes = Blueprint("webhooks", __name__)

    @routes.post("/hook/<path:name>")
    def webhook(name: str) -> tuple[dict[str, Any], int]:
        body = _json_object()
        if body is None:
            return {"error": "the body is not a JSON object"}, 400
        kept = store.keep(
            kind=MessageKind.WEBHOOK,
            key=request.headers.get("Idempotency-Key"),
            to=name,
            title=str(body.get("event") or body.get("type") or name),
            text=json.dumps(body, indent=2),
            payload=body,
            headers={key: value for key, value in request.headers.items() if key.lower() != "authorization"},
        )
        return {"number": kept.number}, 200

    return routes


def _pages(store: MessageStore) -> Blueprint:
    """What was caught, for people and for programs."""
    routes = Blueprint("pages", __name__)

    @routes.get("/")
    def page() -> str:
        messages = store.all()[::-1]
        return render_template(
            "catcher.html",
            messages=messages[:PAGE_LIMIT],
            total=len(messages),
            moment=_moment,
            linked=linked,
            frame_of=_frame_of,
        )

    @routes.get("/messages.json")
    def listing() -> Response:
        return jsonify([{**asdict(message), "parts": sorted(message.parts)} for message in store.all()])

    @routes.get("/messages/<int:number>/parts/<name>")
    def part(number: int, name: str) -> Response:
        message = store.get(number)
        if message is None or name not in message.parts:
            abort(404)
        found = message.parts[name]
        return Response(base64.b64decode(found["data"]), content_type=found["type"])

    @routes.get("/messages/<int:number>.json")
    def one(number: int) -> Response:
        message = store.get(number)
        if message is None:
            abort(404)
        return jsonify(asdict(message))

    @routes.get("/healthz")
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    return routes


def _frame_of(message: CaughtMessage) -> str:
    """A mail's HTML with its pictures taken from here."""
    return framed(
        message.html or "",
        parts=message.parts,
        address_of=lambda name: url_for("pages.part", number=message.number, name=name),
    )


def keep_slack(store: MessageStore, channel: str, body: dict[str, Any]) -> CaughtMessage:
    """Store a Slack message with its blocks flattened to text for the page."""
    lines = [line for block in body.get("blocks") or [] if isinstance(block, dict) for line in _block_lines(block)]
    text = str(body.get("text") or "")
    return store.keep(
        kind=MessageKind.SLACK,
        to=channel,
        title=text.splitlines()[0] if text else (lines[0] if lines else "(blocks)"),
        text="\n".join(lines) if lines else text,
        payload=body,
        key=_slack_key(body),
    )


def _slack_key(body: dict[str, Any]) -> str | None:
    metadata = body.get("metadata")
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    return str(payload["key"]) if isinstance(payload, dict) and payload.get("key") else None


def _block_lines(block: dict[str, Any]) -> list[str]:
    """The words of one Block Kit block: its text, its fields, its elements."""
    found: list[str] = []
    parts = [block.get("text"), *(block.get("fields") or []), *(block.get("elements") or [])]
    for part in parts:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict):
            inner = part.get("text")
            words = inner.get("text") if isinstance(inner, dict) else inner
            link = part.get("url")
            if words:
                found.append(f"{words} ({link})" if link else str(words))
    return found


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), envvar="KERNELWATCH_CATCHER_DIR", required=True)
@click.option("--host", envvar="KERNELWATCH_CATCHER_HOST", default="127.0.0.1", show_default=True)
@click.option("--http-port", type=int, envvar="KERNELWATCH_CATCHER_HTTP_PORT", default=8025, show_default=True)
@click.option("--smtp-port", type=int, envvar="KERNELWATCH_CATCHER_SMTP_PORT", default=1025, show_default=True)
def main(folder: Path, host: str, http_port: int, smtp_port: int) -> None:
    """Catch mail and Slack messages on this machine and show them on a page."""
    store = MessageStore(folder)
    mail = Controller(MailHandler(store), hostname=host, port=smtp_port, enable_SMTPUTF8=True)
    mail.start()
    server = make_server(host, http_port, create_app(store), threaded=True)

    def stop(_number: int, _frame: object) -> None:
        threading.Thread(target=server.shutdown).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    click.echo(f"mail at {host}:{mail.port}, messages at http://{host}:{server.server_port}/")
    try:
        server.serve_forever()
    finally:
        mail.stop()


if __name__ == "__main__":
    main()
