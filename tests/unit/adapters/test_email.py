"""E-mail: threads, the same id at every attempt, and what a server's answer means."""

from __future__ import annotations

import smtplib

import pytest

from service.adapters import email as adapter
from service.adapters.email import EmailSender, compose
from service.domain.message import DeliveryError
from tests.builders_messages import ATTRIBUTED, OPENED

SENDER = "kernelwatch <kw@example.org>"


def parts_of(message, **options):
    mail = compose(message, sender=SENDER, to=["team@example.org"], thread=options.get("thread"))
    text, html = (part.get_content() for part in mail.iter_parts())
    return mail, text, html


def test_the_plain_text_reads_like_its_golden_file(snapshot):
    _, text, _ = parts_of(ATTRIBUTED)
    assert text == snapshot


def test_the_html_has_its_styles_inline_and_escapes_what_people_wrote():
    _, _, html = parts_of(ATTRIBUTED)
    assert "<style" not in html
    assert 'style="' in html
    assert "Use &lt;four&gt; rows &amp; spill less" in html


def test_every_attempt_has_the_same_message_id():
    first, *_ = parts_of(OPENED)
    second, *_ = parts_of(OPENED)
    assert first["Message-ID"] == second["Message-ID"] == "<kernelwatch-1-7@example.org>"


def test_a_reply_belongs_to_the_opening_mail():
    mail, *_ = parts_of(ATTRIBUTED, thread="<kernelwatch-1-7@example.org>")
    assert mail["In-Reply-To"] == "<kernelwatch-1-7@example.org>"
    assert mail["References"] == "<kernelwatch-1-7@example.org>"


def test_size_and_certainty_are_said_apart():
    _, text, _ = parts_of(OPENED)
    assert "+14.3 % (+13.0 % to +15.7 %); 2 of 40 series" in text
    assert "confirmed by an interleaved re-run; one of 4 commits" in text
    assert "kernelwatch compare aaaaaaaaaaaa bbbbbbbbbbbb --kernel" in text


def test_without_a_mail_server_it_says_which_setting_is_missing():
    with pytest.raises(DeliveryError, match="KERNELWATCH_SMTP_URL") as caught:
        EmailSender(smtp_url=None, sender=SENDER).send(OPENED, config={"to": ["a@example.org"]}, thread=None)
    assert not caught.value.transient


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (smtplib.SMTPDataError(451, b"try later"), True),
        (smtplib.SMTPDataError(554, b"never"), False),
        (smtplib.SMTPRecipientsRefused({"a@example.org": (550, b"who?")}), False),
        (ConnectionRefusedError("nobody there"), True),
    ],
)
def test_answers_are_sorted_into_passing_and_lasting(monkeypatch, error, transient):
    def fail(_url):
        raise error

    monkeypatch.setattr(adapter, "_connect", fail)
    sender = EmailSender(smtp_url="smtp://127.0.0.1:1", sender=SENDER)
    with pytest.raises(DeliveryError) as caught:
        sender.send(OPENED, config={"to": ["a@example.org"]}, thread=None)
    assert caught.value.transient is transient
