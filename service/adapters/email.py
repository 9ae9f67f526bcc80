"""E-mail: HTML with inlined CSS beside plain text, threaded by Message-ID.

The Message-ID is made of the outbox row, so a message that is sent twice after a crash is the same message to every
mail server and client.
"""

from __future__ import annotations

import smtplib
from collections.abc import Mapping
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

import css_inline
from jinja2 import Environment, PackageLoader, select_autoescape

from service.adapters.chart import draw
from service.domain.message import DeliveryError, Digest, Message, News, percent
from service.domain.notice import Notice

TIMEOUT_S = 20


@cache
def _templates() -> Environment:
    loader = PackageLoader("service.adapters")
    environment = Environment(loader=loader, autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = percent
    return environment


def compose(message: Message, *, sender: str, to: list[str], thread: str | None) -> EmailMessage:
    """Write the mail of a message; replies carry the opening mail in In-Reply-To and References."""
    mail = _envelope(message, sender=sender, to=to)
    if thread is not None:
        mail["In-Reply-To"] = thread
        mail["References"] = thread
    mail.set_content(_templates().get_template("alert.txt").render(message=message))
    name = f"chart-{message_id(message, sender=sender)[1:-1]}"
    html = _templates().get_template("alert.html").render(message=message, chart=name if message.chart else None)
    mail.add_alternative(css_inline.inline(html), subtype="html")
    if message.chart is not None:
        _, page = mail.iter_parts()
        assert isinstance(page, EmailMessage)
        page.add_related(draw(message.chart), maintype="image", subtype="png", cid=f"<{name}>", filename="chart.png")
    return mail


def compose_digest(digest: Digest, *, sender: str, to: list[str]) -> EmailMessage:
    """Write the mail of a digest: a line per regression, the largest first."""
    mail = _envelope(digest, sender=sender, to=to)
    messages = sorted(digest.messages, key=lambda message: -abs(message.effect))
    mail.set_content(_templates().get_template("digest.txt").render(digest=digest, messages=messages))
    html = _templates().get_template("digest.html").render(digest=digest, messages=messages)
    mail.add_alternative(css_inline.inline(html), subtype="html")
    return mail


def compose_notice(notice: Notice, *, sender: str, to: list[str], thread: str | None) -> EmailMessage:
    """Write the mail of a notice, as a reply where it ends what another began."""
    mail = _envelope(notice, sender=sender, to=to)
    if thread is not None:
        mail["In-Reply-To"] = thread
        mail["References"] = thread
    mail.set_content(_templates().get_template("notice.txt").render(notice=notice))
    html = _templates().get_template("notice.html").render(notice=notice)
    mail.add_alternative(css_inline.inline(html), subtype="html")
    return mail


def _envelope(news: News, *, sender: str, to: list[str]) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = f"[{news.repository}] {news.title}"
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = formatdate()
    mail["Message-ID"] = message_id(news, sender=sender)
    mail["X-Kernelwatch-Key"] = news.key
    return mail


def message_id(news: News, *, sender: str) -> str:
    """Return the Message-ID of a message: the same for every attempt to send it."""
    domain = Address(addr_spec=parseaddr(sender)[1]).domain or "localhost"
    return f"<{news.key}@{domain}>"


class EmailSender:
    """Sends through an SMTP server; `config` = {"to": [...], "smtp_url"?: ...}."""

    def __init__(self, *, smtp_url: str | None, sender: str) -> None:
        self._smtp_url = smtp_url
        self._sender = sender

    def send(self, message: Message, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Hand the mail to the server and return its Message-ID; raises DeliveryError."""
        return self._hand_over(compose(message, sender=self._sender, to=list(config["to"]), thread=thread), config)

    def send_notice(self, notice: Notice, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Hand the notice to the server and return its Message-ID; raises DeliveryError."""
        mail = compose_notice(notice, sender=self._sender, to=list(config["to"]), thread=thread)
        return self._hand_over(mail, config)

    def send_digest(self, digest: Digest, *, config: Mapping[str, Any]) -> str:
        """Hand the digest to the server and return its Message-ID; raises DeliveryError."""
        return self._hand_over(compose_digest(digest, sender=self._sender, to=list(config["to"])), config)

    def _hand_over(self, mail: EmailMessage, config: Mapping[str, Any]) -> str:
        url = config.get("smtp_url") or self._smtp_url
        if not url:
            raise DeliveryError("no mail server: set KERNELWATCH_SMTP_URL", transient=False)
        try:
            with _connect(str(url)) as server:
                server.send_message(mail)
        except smtplib.SMTPResponseException as error:
            text = (
                error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
            )
            raise DeliveryError(
                f"the mail server answered {error.smtp_code}: {text}", transient=error.smtp_code < 500
            ) from error
        except smtplib.SMTPRecipientsRefused as error:
            raise DeliveryError(f"the mail server refused {', '.join(error.recipients)}", transient=False) from error
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryError(f"the mail server could not be reached: {error}", transient=True) from error
        return str(mail["Message-ID"])


def _connect(url: str) -> smtplib.SMTP:
    """Open smtp://user:password@host:port (STARTTLS where offered) or smtps://..."""
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    if parts.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, parts.port or 465, timeout=TIMEOUT_S)
    else:
        server = smtplib.SMTP(host, parts.port or 25, timeout=TIMEOUT_S)
        server.ehlo()
        if server.has_extn("starttls"):
            server.starttls()
    if parts.username:
        server.login(unquote(parts.username), unquote(parts.password or ""))
    return server
