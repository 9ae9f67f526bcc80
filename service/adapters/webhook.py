"""A generic signed webhook: the message as JSON, HMAC-SHA256 over the body, like a forge's own."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import httpx

from service.adapters.slack import TIMEOUT_S
from service.domain.message import DeliveryError, Message


class WebhookSender:
    """Posts signed JSON; `config` = {"url": ..., "secret": ...}."""

    def send(self, message: Message, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Post the message and return its key; raises DeliveryError."""
        body = json.dumps({**asdict(message), "title": message.title, "thread": thread}).encode()
        signature = hmac.new(str(config["secret"]).encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": message.key,
            "X-Kernelwatch-Signature-256": f"sha256={signature}",
        }
        try:
            answer = httpx.post(str(config["url"]), content=body, headers=headers, timeout=TIMEOUT_S)
        except httpx.HTTPError as error:
            raise DeliveryError(f"{config['url']} could not be reached: {error}", transient=True) from error
        if answer.status_code >= 300:
            transient = answer.status_code == 429 or answer.status_code >= 500
            raise DeliveryError(f"{config['url']} answered {answer.status_code}", transient=transient)
        return message.key
