"""Slack: what people see, and what a refusal means."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx
import pytest

from service.adapters.slack import SlackWebhookSender, blocks_of, digest_blocks
from service.domain.message import DeliveryError, Digest
from tests.builders_messages import ATTRIBUTED, OPENED


def test_an_opened_regression_reads_like_its_golden_file(snapshot):
    assert json.dumps(blocks_of(OPENED), indent=1, ensure_ascii=False) == snapshot


def test_an_attributed_regression_reads_like_its_golden_file(snapshot):
    assert json.dumps(blocks_of(ATTRIBUTED), indent=1, ensure_ascii=False) == snapshot


def test_a_commit_subject_cannot_break_the_markup():
    text = json.dumps(blocks_of(ATTRIBUTED))
    assert "<four>" not in text
    assert "&lt;four&gt; rows &amp; spill" in text


def test_every_block_stays_within_slacks_limit():
    many = replace(OPENED, series=OPENED.series * 400)
    for block in blocks_of(many):
        if block["type"] == "section":
            assert len(block["text"]["text"]) <= 3000


@pytest.mark.parametrize(
    ("status", "transient"), [(429, True), (500, True), (503, True), (403, False), (404, False), (410, False)]
)
def test_refusals_are_sorted_into_passing_and_lasting(monkeypatch, status, transient):
    def refuse(url, **_):
        return httpx.Response(status, text="no", headers={"Retry-After": "7"}, request=httpx.Request("POST", url))

    monkeypatch.setattr(httpx, "post", refuse)
    with pytest.raises(DeliveryError) as caught:
        SlackWebhookSender().send(OPENED, config={"url": "http://127.0.0.1:1/x"}, thread=None)
    assert caught.value.transient is transient
    assert caught.value.retry_after_s == 7.0


def test_a_peer_that_is_away_is_tried_again():
    with pytest.raises(DeliveryError) as caught:
        SlackWebhookSender().send(OPENED, config={"url": "http://127.0.0.1:1/x"}, thread=None)
    assert caught.value.transient


def test_a_digest_reads_like_its_golden_file(snapshot):
    other = replace(
        OPENED, key="kernelwatch-1-9", regression_id=4, url="http://127.0.0.1:8080/regressions/4", effect=0.31
    )
    digest = Digest(
        key="d", repository="acme/kernels", messages=(ATTRIBUTED, other), url="http://127.0.0.1:8080/regressions"
    )
    assert json.dumps(digest_blocks(digest), indent=1, ensure_ascii=False) == snapshot


def test_a_mention_severity_reason_and_model_step_read_like_their_golden_file(snapshot):
    full = replace(
        ATTRIBUTED,
        severity_reason="+14.3 %, raised: +1.8 % of the step of a model",
        steps=("+1.8 % of the step of a model",),
        owners=("@acme/kernels",),
    )
    assert json.dumps(blocks_of(full, mention="U0123456"), indent=1, ensure_ascii=False) == snapshot
