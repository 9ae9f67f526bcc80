"""GitHub and GitLab issues: one issue per regression, its later news as comments, closed when it is fixed.

Neither forge takes an idempotency key, so a marker in the text is looked for before anything is written: the issue by
the regression's own address, a comment by the message's key. The newest issues with our label are listed rather than
searched: a search index lags behind, a list does not. Sources: GitHub, "REST API endpoints for issues" (2022-11-28)
and "Best practices for using the REST API" (rate limits); GitLab, "Issues API" and "Notes API".
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from service.domain.message import DeliveryError, Digest, Message, mention_of, percent
from service.domain.notice import Notice
from service.domain.states import NotificationEvent

TIMEOUT_S = 20
LABEL = "kernelwatch"
PAGE_SIZE, PAGES = 100, 3
CLOSING = frozenset({NotificationEvent.FIXED, NotificationEvent.WITHDRAWN, NotificationEvent.REPAIRED})
GITHUB_URL, GITLAB_URL = "https://api.github.com", "https://gitlab.com/api/v4"


@dataclass(frozen=True, slots=True)
class Found:
    """An issue or a comment that a forge holds."""

    number: str
    text: str


class Forge(Protocol):
    """What the two forges do alike, each in its own words."""

    def issues(self, page: int) -> Sequence[Found]:
        """Issues with our label, open and closed, the newest first."""

    def comments(self, number: str, page: int) -> Sequence[Found]:
        """Comments of an issue."""

    def create(self, title: str, text: str) -> str:
        """Open an issue; returns its number."""

    def comment(self, number: str, text: str) -> None:
        """Add to an issue."""

    def set_open(self, number: str) -> None:
        """Open an issue that was closed; nothing if it is open."""

    def set_closed(self, number: str) -> None:
        """Close an issue; nothing if it is closed."""


def tell(forge: Forge, message: Message | Notice, *, thread: str | None, text: str) -> str:
    """Write the news where it belongs and return the issue's number; a second call finds what the first has written."""
    number, said = thread, False
    if number is None:
        found = _find(forge.issues, marker(topic_of(message)))
        number, said = (found.number, marker(message.key) in found.text) if found else (None, False)
    if number is None:
        if message.event in CLOSING:
            return message.key  # there is no issue to close
        return forge.create(message.title, text)
    if not said and _find(lambda page: forge.comments(number, page), marker(message.key)) is None:
        forge.comment(number, text)
    if message.event in CLOSING:
        forge.set_closed(number)
    elif message.event is NotificationEvent.REOPENED:
        forge.set_open(number)
    return number


def _find(listing: Any, wanted: str) -> Found | None:
    for page in range(1, PAGES + 1):
        found: Sequence[Found] = listing(page)
        for one in found:
            if wanted in one.text:
                return one
        if len(found) < PAGE_SIZE:
            return None
    return None


def marker(name: str) -> str:
    """What is looked for: invisible in both forges' Markdown."""
    return f"<!-- kernelwatch {name} -->"


def topic_of(news: Message | Notice) -> str:
    """What an issue is about: the address of the regression's page, or the notice's subject."""
    return news.url if isinstance(news, Message) else f"{news.repository} {news.subject}"


def notice_body(notice: Notice) -> str:
    """Return the Markdown of a notice."""
    lines = [f"**{notice.title}**", "", _code(notice.explanation), ""]
    lines += [f"- {line.name} {_code(line.words) if line.words else ''}".rstrip() for line in notice.lines]
    return "\n".join([*lines, "", f"[What is known]({notice.url})", marker(topic_of(notice)), marker(notice.key)])


def body_of(message: Message, *, mention: str | None) -> str:
    """Return the Markdown of a message; what people wrote stands in code marks, so that it neither links nor calls."""
    lines = [f"**{message.title}**", ""]
    lines += [f"- Size: {message.size}", f"- Certainty: {message.certainty}", f"- Severity: {message.loudness}"]
    lines += [f"- Model: {step}" for step in message.steps]
    if message.culprit is not None:
        commit = message.culprit
        lines.append(f"- Commit: {commit.sha} {_code(commit.subject)} by {_code(commit.author)}")
    else:
        lines.append(f"- Range: {message.good.sha} .. {message.bad.sha}")
    if mention is not None:
        lines.append(f"- Owner: {mention}")
    if message.note:
        lines.append(f"- Note: {_code(message.note)}")
    lines += ["", *(f"    {percent(line.effect):>9}  {line.workload}" for line in message.series)]
    lines += ["", f"[Evidence]({message.url}). Reproduce it:", "", f"    {message.reproduce}", ""]
    return "\n".join([*lines, marker(message.url), marker(message.key)])


def _code(text: str) -> str:
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


@dataclass(frozen=True, slots=True)
class GitHubIssues:
    """GitHub's issues API."""

    base_url: str
    repository: str
    token: str

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        url = f"{self.base_url.rstrip('/')}/repos/{self.repository}{path}"
        return ask(method, url, headers=headers, **options)

    def issues(self, page: int) -> Sequence[Found]:
        """Issues with our label, the newest first."""
        query = {"labels": LABEL, "state": "all", "sort": "created", "per_page": PAGE_SIZE, "page": page}
        return [Found(str(one["number"]), one.get("body") or "") for one in self._ask("GET", "/issues", params=query)]

    def comments(self, number: str, page: int) -> Sequence[Found]:
        """Comments, the oldest first."""
        query = {"per_page": PAGE_SIZE, "page": page}
        found = self._ask("GET", f"/issues/{number}/comments", params=query)
        return [Found(str(one["id"]), one.get("body") or "") for one in found]

    def create(self, title: str, text: str) -> str:
        """Open an issue."""
        return str(self._ask("POST", "/issues", json={"title": title, "body": text, "labels": [LABEL]})["number"])

    def comment(self, number: str, text: str) -> None:
        """Add a comment."""
        self._ask("POST", f"/issues/{number}/comments", json={"body": text})

    def set_open(self, number: str) -> None:
        """Reopen."""
        self._ask("PATCH", f"/issues/{number}", json={"state": "open"})

    def set_closed(self, number: str) -> None:
        """Close."""
        self._ask("PATCH", f"/issues/{number}", json={"state": "closed"})


@dataclass(frozen=True, slots=True)
class GitLabIssues:
    """GitLab's issues and notes API; `project` is a number or a path."""

    base_url: str
    project: str
    token: str

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        url = f"{self.base_url.rstrip('/')}/projects/{quote(self.project, safe='')}{path}"
        return ask(method, url, headers={"PRIVATE-TOKEN": self.token}, **options)

    def issues(self, page: int) -> Sequence[Found]:
        """Issues with our label, the newest first."""
        query = {"labels": LABEL, "scope": "all", "order_by": "created_at", "per_page": PAGE_SIZE, "page": page}
        found = self._ask("GET", "/issues", params=query)
        return [Found(str(one["iid"]), one.get("description") or "") for one in found]

    def comments(self, number: str, page: int) -> Sequence[Found]:
        """Notes of an issue."""
        query = {"per_page": PAGE_SIZE, "page": page}
        found = self._ask("GET", f"/issues/{number}/notes", params=query)
        return [Found(str(one["id"]), one.get("body") or "") for one in found]

    def create(self, title: str, text: str) -> str:
        """Open an issue."""
        return str(self._ask("POST", "/issues", json={"title": title, "description": text, "labels": LABEL})["iid"])

    def comment(self, number: str, text: str) -> None:
        """Add a note."""
        self._ask("POST", f"/issues/{number}/notes", json={"body": text})

    def set_open(self, number: str) -> None:
        """Reopen."""
        self._ask("PUT", f"/issues/{number}", json={"state_event": "reopen"})

    def set_closed(self, number: str) -> None:
        """Close."""
        self._ask("PUT", f"/issues/{number}", json={"state_event": "close"})


def ask(method: str, url: str, **options: Any) -> Any:
    """Return the JSON of an answer. Raises DeliveryError: rate limits, server errors and silence are transient."""
    try:
        answer = httpx.request(method, url, timeout=TIMEOUT_S, **options)
    except httpx.HTTPError as error:
        raise DeliveryError(f"{url} could not be reached: {error}", transient=True) from error
    except httpx.InvalidURL as error:
        raise DeliveryError(f"{url} is not a URL: {error}", transient=False) from error
    if answer.is_success:
        return answer.json()
    limited = answer.status_code == 429 or (answer.status_code == 403 and _is_rate_limit(answer))
    raise DeliveryError(
        f"{url} answered {answer.status_code}: {answer.text[:200]}",
        transient=limited or answer.status_code >= 500,
        retry_after_s=_wait_s(answer) if limited else 0.0,
    )


def _is_rate_limit(answer: httpx.Response) -> bool:
    return answer.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in answer.headers


def _wait_s(answer: httpx.Response) -> float:
    after, reset = answer.headers.get("retry-after", ""), answer.headers.get("x-ratelimit-reset", "")
    if after.isdigit():
        return float(after)
    return max(float(reset) - time.time(), 0.0) if reset.isdigit() else 0.0


class GitHubIssueSender:
    """`config` = {"repository": "owner/name", "token": ..., "base_url"?: ...}."""

    def send(self, message: Message, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Write the news and return the issue's number; raises DeliveryError."""
        return tell(
            self._forge(config), message, thread=thread, text=body_of(message, mention=mention_of(message, config))
        )

    def send_notice(self, notice: Notice, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Write the notice and return the issue's number; raises DeliveryError."""
        return tell(self._forge(config), notice, thread=thread, text=notice_body(notice))

    @staticmethod
    def _forge(config: Mapping[str, Any]) -> Forge:
        base_url = str(config.get("base_url") or GITHUB_URL)
        return GitHubIssues(base_url, repository=str(config["repository"]), token=str(config["token"]))

    def send_digest(self, digest: Digest, *, config: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Refused: news for issues is never held back."""
        raise DeliveryError(f"an issue takes no digest ({digest.key})", transient=False)


class GitLabIssueSender:
    """`config` = {"project": number or path, "token": ..., "base_url"?: ...}."""

    def send(self, message: Message, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Write the news and return the issue's number; raises DeliveryError."""
        return tell(
            self._forge(config), message, thread=thread, text=body_of(message, mention=mention_of(message, config))
        )

    def send_notice(self, notice: Notice, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Write the notice and return the issue's number; raises DeliveryError."""
        return tell(self._forge(config), notice, thread=thread, text=notice_body(notice))

    @staticmethod
    def _forge(config: Mapping[str, Any]) -> Forge:
        base_url = str(config.get("base_url") or GITLAB_URL)
        return GitLabIssues(base_url, project=str(config["project"]), token=str(config["token"]))

    def send_digest(self, digest: Digest, *, config: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Refused: news for issues is never held back."""
        raise DeliveryError(f"an issue takes no digest ({digest.key})", transient=False)
