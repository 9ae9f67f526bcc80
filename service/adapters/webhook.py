"""A generic signed webhook: the message as JSON, HMAC-SHA256 over the body, like a forge's own."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import httpx

from service.adapters.slack import TIMEOUT_S
from service.domain.message import DeliveryError, Digest, Message
from service.domain.notice import Notice


class WebhookSender:
    """Posts signed JSON; `config` = {"url": ..., "secret": ...}."""

    def send(self, message: Message, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Post the message and return its key; raises DeliveryError."""
        return self._post({**_facts(message), "thread": thread}, config)

    def send_notice(self, notice: Notice, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Post the notice and return its key; raises DeliveryError."""
        return self._post({**asdict(notice), "thread": thread}, config)

    def send_digest(self, digest: Digest, *, config: Mapping[str, Any]) -> str:
        """Post the digest, as event `digest` with its messages; raises DeliveryError."""
        messages = [_facts(message) for message in digest.messages]
        notices = [asdict(notice) for notice in digest.notices]
        payload = {"event": "digest", "key": digest.key, "repository": digest.repository, "url": digest.url}
        return self._post({**payload, "title": digest.title, "messages": messages, "notices": notices}, config)

    @staticmethod
    def _post(payload: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        key = str(payload["key"])
        body = json.dumps(payload).encode()
        signature = hmac.new(str(config["secret"]).encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "X-Kernelwatch-Signature-256": f"sha256={signature}",
        }
        try:
            answer = httpx.post(str(config["url"]), content=body, headers=headers, timeout=TIMEOUT_S)
        except httpx.HTTPError as error:
            raise DeliveryError(f"{config['url']} could not be reached: {error}", transient=True) from error
        if answer.status_code >= 300:
            transient = answer.status_code == 429 or answer.status_code >= 500
            raise DeliveryError(f"{config['url']} answered {answer.status_code}", transient=transient)
        return key


def _facts(message: Message) -> dict[str, Any]:
    """The message as JSON, with its title; the points of the chart are on the page."""
    return {**asdict(replace(message, chart=None)), "title": message.title}
