"""The bell: what arrives at the broker, and what happens when there is none."""

from __future__ import annotations

import base64
import json

import redis

from service import celery_app, schedule
from service.adapters.queue import CeleryBell, make_producer
from service.settings import Settings


def test_a_ring_is_a_message_on_the_pool_s_own_queue_that_names_the_run_and_nothing_else(broker_url):
    CeleryBell(make_producer(broker_url)).ring("cpu", 42)
    with redis.Redis.from_url(broker_url) as client:
        [raw] = client.lrange("pool.cpu", 0, -1)
    message = json.loads(raw)
    arguments, keywords, _ = json.loads(base64.b64decode(message["body"]))
    assert message["headers"]["task"] == "runners.measure"
    assert (arguments, keywords) == ([], {"run_id": 42})
    assert message["headers"]["expires"]


def test_the_service_s_own_tasks_go_to_its_own_queue(broker_url):
    CeleryBell(make_producer(broker_url)).later("service.after_report", {"run_id": 7})
    with redis.Redis.from_url(broker_url) as client:
        assert client.llen("service") == 1


def test_ringing_without_a_broker_is_not_an_error():
    bell = CeleryBell(make_producer("redis://127.0.0.1:1/0"))
    bell.ring("cpu", 1)
    bell.later("service.nightly", {})


def test_every_scheduled_task_exists_and_goes_to_a_queue_somebody_listens_to(settings):
    app = celery_app.make_celery(settings)
    for entry in app.conf.beat_schedule.values():
        assert entry["task"] in app.tasks
        assert entry["options"]["queue"] == "service"
    assert {entry["task"] for entry in schedule.beat_schedule().values()} == set(schedule.beat_schedule())


def test_a_task_runs_its_use_case_with_services_of_its_own_process(settings, service, repository):
    app = celery_app.make_celery(settings)
    app.tasks["service.nightly"].run()
    app.tasks["service.expire_leases"].run()
    app.tasks["service.after_report"].run(run_id=4711)


def test_a_visibility_time_out_lies_above_the_longest_run():
    assert make_producer("redis://x").conf.broker_transport_options["visibility_timeout"] > 6 * 3600


def test_the_celery_application_is_made_when_it_is_asked_for(monkeypatch, settings):
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    celery_app._app_of_this_process.cache_clear()
    assert celery_app.app is celery_app.celery
    assert celery_app.app.conf.broker_url == Settings().redis_url
    celery_app._app_of_this_process.cache_clear()
