"""Slack: Block Kit messages through an incoming webhook or a bot token.

A bot posts replies into the thread of the opening message; an incoming webhook cannot thread, so its later messages
name the regression they belong to. The idempotency key travels as message metadata (bot) or as a header (webhook).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError

from service.domain.message import DeliveryError, Digest, Message, News, mention_of, percent
from service.domain.notice import Notice
from service.domain.states import Direction, NotificationEvent

TIMEOUT_S = 10
DIGEST_LINES = 20  # Slack takes 50 blocks; a digest is for a glance
TEXT_LIMIT = 2900  # Slack refuses a section's text of more than 3,000 characters
PERMANENT = {
    "channel_not_found",
    "invalid_auth",
    "is_archived",
    "missing_scope",
    "not_authed",
    "not_in_channel",
    "account_inactive",
    "token_revoked",
}
USER_ID = re.compile(r"[UW][A-Z0-9]{6,}")
MARKS = {Direction.REGRESSION: ":small_red_triangle:", Direction.IMPROVEMENT: ":small_blue_diamond:"}


def blocks_of(message: Message, *, mention: str | None = None) -> list[dict[str, Any]]:
    """Return the Block Kit blocks of a message: headline, size and certainty, commit, owner, series, links."""
    head = f"{MARKS[message.direction]} *<{message.url}|{escape(message.title)}>*"
    facts = [
        f"*Size*  {message.size}",
        f"*Certainty*  {message.certainty}",
        f"*Severity*  {escape(message.loudness)}",
    ]
    facts += [f"*Model*  {escape(step)}" for step in message.steps]
    if message.culprit is not None:
        commit = message.culprit
        facts.append(f"*Commit*  `{commit.sha[:12]}` {escape(commit.subject)} ({escape(commit.author)})")
    else:
        facts.append(f"*Range*  `{message.good.sha[:12]}` .. `{message.bad.sha[:12]}`")
    if mention is not None:
        facts.append(f"*Owner*  {f'<@{mention}>' if USER_ID.fullmatch(mention) else escape(mention)}")
    if message.owners and not message.assignee:
        facts.append(f"*Code owners*  {escape(', '.join(message.owners))}")
    if message.note:
        facts.append(f"*Note*  {escape(message.note)}")
    blocks = [_section(head), _section("\n".join(facts))]
    if message.event in {NotificationEvent.OPENED, NotificationEvent.REOPENED} and message.series:
        lines = [f"{percent(line.effect):>9}  {line.workload}" for line in message.series]
        blocks.append(_section("```" + "\n".join(lines)[:TEXT_LIMIT] + "```"))
    blocks.append(
        {
            "type": "context",
            "elements": [
                {"type": "mrkdwn", "text": f"{escape(message.repository)} · regression {message.regression_id}"},
                {"type": "mrkdwn", "text": f"reproduce: `{message.reproduce}`"},
            ],
        }
    )
    return blocks


def digest_blocks(digest: Digest) -> list[dict[str, Any]]:
    """Return the blocks of a digest: a line per regression, the largest first, as many as Slack takes."""
    lines = [
        f"{MARKS[message.direction]} *<{message.url}|{escape(message.title)}>*  {escape(message.certainty)}"
        for message in sorted(digest.messages, key=lambda message: -abs(message.effect))
    ]
    shown = lines[:DIGEST_LINES]
    if len(lines) > len(shown):
        shown.append(f"<{digest.url}|and {len(lines) - len(shown)} more>")
    return [
        _section(f"*{escape(digest.repository)}*: {digest.count}"),
        *(_section(line) for line in shown),
        *(_section(f"*<{one.url}|{escape(one.title)}>*") for one in digest.notices[:DIGEST_LINES]),
    ]


def notice_blocks(notice: Notice) -> list[dict[str, Any]]:
    """Return the blocks of a notice: headline, what it means, a line for each thing that it names."""
    lines = [
        f"{f'<{line.url}|{escape(line.name)}>' if line.url else escape(line.name)}  {escape(line.words)}".rstrip()
        for line in notice.lines
    ]
    blocks = [_section(f"*<{notice.url}|{escape(notice.title)}>*"), _section(escape(notice.explanation))]
    if lines:
        blocks.append(_section("\n".join(lines)))
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": escape(notice.repository)}]})
    return blocks


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:TEXT_LIMIT]}}


def _payload(news: News, config: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(news, Digest):
        blocks = digest_blocks(news)
    elif isinstance(news, Notice):
        blocks = notice_blocks(news)
    else:
        blocks = blocks_of(news, mention=mention_of(news, config))
    return {
        "text": news.title,
        "blocks": blocks,
        "metadata": {"event_type": "kernelwatch", "event_payload": {"key": news.key}},
    }


def escape(text: str) -> str:
    """Escape the three characters that Slack's mrkdwn gives a meaning."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class SlackWebhookSender:
    """Posts to an incoming webhook; `config` = {"url": ...}."""

    def send(self, message: Message, *, config: Mapping[str, Any], thread: str | None) -> str:  # noqa: ARG002
        """Post the blocks and return the message's key; raises DeliveryError."""
        return self._post(message, config)

    def send_notice(self, notice: Notice, *, config: Mapping[str, Any], thread: str | None) -> str:  # noqa: ARG002
        """Post the notice and return its key; raises DeliveryError."""
        return self._post(notice, config)

    def send_digest(self, digest: Digest, *, config: Mapping[str, Any]) -> str:
        """Post the digest and return its key; raises DeliveryError."""
        return self._post(digest, config)

    @staticmethod
    def _post(news: News, config: Mapping[str, Any]) -> str:
        post_json(str(config["url"]), _payload(news, config), headers={"Idempotency-Key": news.key})
        return news.key


class SlackBotSender:
    """Posts as a bot and threads replies; `config` = {"token": ..., "channel": ...}."""

    def send(self, message: Message, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Post the blocks and return Slack's timestamp of the message; raises DeliveryError."""
        return self._post(message, config, thread)

    def send_notice(self, notice: Notice, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Post the notice and return Slack's timestamp of it; raises DeliveryError."""
        return self._post(notice, config, thread)

    def send_digest(self, digest: Digest, *, config: Mapping[str, Any]) -> str:
        """Post the digest, in no thread; raises DeliveryError."""
        return self._post(digest, config, None)

    @staticmethod
    def _post(news: News, config: Mapping[str, Any], thread: str | None) -> str:
        client = WebClient(token=str(config["token"]), timeout=TIMEOUT_S)
        if base := config.get("base_url"):
            client.base_url = str(base)
        try:
            answer = client.chat_postMessage(
                channel=str(config["channel"]),
                thread_ts=thread,
                **_payload(news, config),
            )
        except SlackApiError as error:
            code = str(error.response.get("error", "unknown"))
            retry_after_s = float(error.response.headers.get("Retry-After", 0))
            raise DeliveryError(
                f"Slack refused the message: {code}", transient=code not in PERMANENT, retry_after_s=retry_after_s
            ) from error
        except (SlackClientError, OSError) as error:
            raise DeliveryError(f"Slack could not be reached: {error}", transient=True) from error
        return str(answer["ts"])


def post_json(url: str, payload: Mapping[str, Any], *, headers: Mapping[str, str]) -> httpx.Response:
    """POST JSON; 429 and 5xx are transient, other refusals permanent. Raises DeliveryError."""
    try:
        answer = httpx.post(url, json=payload, headers=dict(headers), timeout=TIMEOUT_S)
    except httpx.HTTPError as error:
        raise DeliveryError(f"{url} could not be reached: {error}", transient=True) from error
    except httpx.InvalidURL as error:
        raise DeliveryError(f"{url} is not a URL: {error}", transient=False) from error
    if answer.status_code >= 300:
        wait = answer.headers.get("Retry-After", "0")
        raise DeliveryError(
            f"{url} answered {answer.status_code}: {answer.text[:200]}",
            transient=answer.status_code == 429 or answer.status_code >= 500,
            retry_after_s=float(wait) if wait.isdigit() else 0.0,
        )
    return answer
