"""The catcher over real SMTP and HTTP: what is accepted is on disk, what is malformed is refused in Slack's words."""

from __future__ import annotations

import re
import smtplib
from email.message import EmailMessage

import httpx
import pytest
from aiosmtpd.controller import Controller

from service.local.catcher import MailHandler, MessageKind, MessageStore, create_app
from service.local.processes import free_port


@pytest.fixture
def store(tmp_path):
    return MessageStore(tmp_path / "messages")


@pytest.fixture
def client(store):
    return create_app(store).test_client()


def test_mail_over_smtp_is_kept_with_text_html_and_headers(store):
    controller = Controller(MailHandler(store), hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        mail = EmailMessage()
        mail["Subject"], mail["From"], mail["To"] = "14 % slower ✓", "kernelwatch@localhost", "ada@example.com"
        mail["X-Kernelwatch-Key"] = "k-1"
        mail.set_content("the text")
        mail.add_alternative("<p>the html</p>", subtype="html")
        with smtplib.SMTP("127.0.0.1", controller.port) as server:
            server.send_message(mail)
    finally:
        controller.stop()
    (kept,) = store.all()
    assert (kept.kind, kept.to, kept.title) == (MessageKind.EMAIL, "ada@example.com", "14 % slower ✓")
    assert kept.text.strip() == "the text"
    assert "the html" in kept.html
    assert kept.headers["X-Kernelwatch-Key"] == "k-1"


def test_messages_survive_a_restart_and_numbers_go_on(store):
    store.keep(kind=MessageKind.SLACK, to="#a", title="one", text="one")
    again = MessageStore(store.folder)
    again.keep(kind=MessageKind.SLACK, to="#a", title="two", text="two")
    assert [(m.number, m.title) for m in again.all()] == [(1, "one"), (2, "two")]


def test_incoming_webhook_answers_like_slack(client, store):
    assert client.post("/slack/kernels", data="not json").data == b"invalid_payload"
    assert client.post("/slack/kernels", json={"blocks": []}).data == b"no_text"
    assert store.all() == []
    block = {"type": "section", "text": {"type": "mrkdwn", "text": "*gemm* +14 %"}}
    answer = client.post("/slack/kernels", json={"text": "slower", "blocks": [block]})
    assert (answer.status_code, answer.data) == (200, b"ok")
    (kept,) = store.all()
    assert (kept.to, kept.title, kept.text) == ("#kernels", "slower", "*gemm* +14 %")


def test_bot_messages_get_distinct_timestamps_so_that_replies_join_their_thread(client):
    def post(**body):
        return client.post("/api/chat.postMessage", json=body, headers={"Authorization": "Bearer x"}).get_json()

    assert client.post("/api/chat.postMessage", json={"text": "x"}).get_json()["error"] == "not_authed"
    assert post(text="x")["error"] == "channel_not_found"
    assert post(channel="C1")["error"] == "no_text"
    first, second = post(channel="C1", text="opened"), post(channel="C1", text="culprit")
    assert first["ok"]
    assert first["ts"] != second["ts"]


def test_page_shows_messages_newest_first_and_runs_nothing_of_theirs(client, store):
    store.keep(kind=MessageKind.SLACK, to="#a", title="older", text="<script>alert(1)</script>")
    store.keep(kind=MessageKind.EMAIL, to="a@b", title="newer", text="t", html="<script>alert(2)</script>")
    page = client.get("/").get_data(as_text=True)
    assert page.index("newer") < page.index("older")
    assert "<script>" not in page
    assert "sandbox=" in page
    assert "allow-scripts" not in page


def test_json_of_one_message_or_404(client, store):
    store.keep(kind=MessageKind.WEBHOOK, to="ci", title="t", text="x", payload={"a": 1})
    assert client.get("/messages/1.json").get_json()["payload"] == {"a": 1}
    assert client.get("/messages/2.json").status_code == 404
    assert [m["number"] for m in client.get("/messages.json").get_json()] == [1]


def test_generic_webhook_keeps_the_idempotency_key_and_no_credentials(client, store):
    headers = {"Idempotency-Key": "k-1", "Authorization": "Bearer secret"}
    assert client.post("/hook/ci", json={"event": "opened"}, headers=headers).status_code == 200
    assert client.post("/hook/ci", json=[1]).status_code == 400
    (kept,) = store.all()
    assert kept.headers["Idempotency-Key"] == "k-1"
    assert "secret" not in str(kept)


def test_program_serves_both_protocols_and_ends_on_sigterm(tmp_path):
    import signal
    import subprocess
    import sys
    import time

    http_port, smtp_port = free_port(), free_port()
    command = [sys.executable, "-m", "service.local.catcher", "--folder", str(tmp_path)]
    command += ["--http-port", str(http_port), "--smtp-port", str(smtp_port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                assert httpx.get(f"http://127.0.0.1:{http_port}/healthz", trust_env=False).status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.1)
        with smtplib.SMTP("127.0.0.1", smtp_port) as server:
            server.sendmail("a@localhost", ["b@localhost"], "Subject: hello\r\n\r\nthere\r\n")
        messages = httpx.get(f"http://127.0.0.1:{http_port}/messages.json", trust_env=False).json()
        assert [message["title"] for message in messages] == ["hello"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_the_chart_of_a_mail_is_served_and_the_frame_asks_for_it(client, store):
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = "slower", "kernelwatch@localhost", "ada@example.com"
    mail.set_content("the text")
    mail.add_alternative('<img src="cid:chart@1"><a href="http://h/regressions/1">open</a>', subtype="html")
    _, html = mail.iter_parts()
    html.add_related(b"\x89PNG bytes", maintype="image", subtype="png", cid="<chart@1>")
    html.add_related(b"<svg onload=alert(1)>", maintype="image", subtype="svg+xml", cid="<script@1>")
    controller = Controller(MailHandler(store), hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        with smtplib.SMTP("127.0.0.1", controller.port) as server:
            server.send_message(mail)
    finally:
        controller.stop()
    page = client.get("/").text
    address = re.search(r"&#34;(/messages/1/parts/[^&]+)&#34;", page)[1]
    picture = client.get(address)
    assert (picture.data, picture.mimetype) == (b"\x89PNG bytes", "image/png")
    assert client.get("/messages/1/parts/script@1").status_code == 404
    assert 'sandbox="allow-popups allow-popups-to-escape-sandbox"' in page
    assert client.get("/messages.json").json[0]["parts"] == ["chart@1"]


def test_slack_links_can_be_followed(client):
    client.post("/slack/kernels", json={"text": "see <http://h/regressions/3|regression 3>"})
    assert '<a href="http://h/regressions/3" target="_blank" rel="noopener">regression 3</a>' in client.get("/").text


def test_what_is_not_there_is_a_page_for_a_browser_and_json_for_a_program(client):
    page = client.get("/nothing", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (page.status_code, page.mimetype) == (404, "text/html")
    assert 'href="/"' in page.text
    answer = client.post("/api/conversations.list", json={})
    assert (answer.status_code, answer.json["ok"]) == (404, False)
