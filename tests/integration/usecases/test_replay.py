"""Another detector or policy over the stored history: seen before it is adopted."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from service.detection_cli import policy as policy_command
from service.detection_cli import replay_command
from service.store.tables import AuditEvent, Repository
from service.usecases.policy import DetectionPolicy
from service.usecases.replay import replay
from tests.story import Planted, Story


@pytest.fixture
def story(sessions):
    plans = [Planted()] * 24
    plans[11] = Planted({"gemm": 1.2})
    told = Story(sessions, plans, seed=41)
    for tip in (1, 3, 5, 7, 9, 13, 15, 17, 19):
        told.push(tip)
    assert told.found() == {11: "attributed"}
    return told


def test_the_detector_agrees_with_what_the_service_has_recorded(story):
    with story.sessions() as session:
        outcome = replay(session, repository_id=story.repository_id, since=None, policy=DetectionPolicy())
    assert outcome.count("kept") == 3  # three shapes of gemm
    assert outcome.count("lost") == 0
    assert outcome.count("new") == 0


def test_a_higher_floor_shows_what_it_would_have_lost(story):
    with story.sessions() as session:
        outcome = replay(session, repository_id=story.repository_id, since=None, policy=DetectionPolicy(min_effect=0.4))
    assert outcome.count("lost") == 3


def test_an_unknown_detector_is_refused_with_those_there_are(story):
    with story.sessions() as session, pytest.raises(LookupError, match="known: kw-cpd"):
        replay(session, repository_id=story.repository_id, since=None, policy=DetectionPolicy(), detector="magic/9")


def test_a_policy_is_previewed_then_saved_with_an_audit_line(story, database_url, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", database_url)
    asked = CliRunner().invoke(policy_command, ["set", "acme/kernels", "--min-effect", "0.4"], input="n\n")
    assert "3 lost" in asked.output
    with story.sessions() as session:
        assert session.get_one(Repository, story.repository_id).settings == {}
    saved = CliRunner().invoke(
        policy_command, ["set", "acme/kernels", "--min-effect", "0.05", "--workload", "moe*", "--yes"]
    )
    assert saved.exit_code == 0, saved.output
    with story.sessions() as session:
        settings = session.get_one(Repository, story.repository_id).settings
        assert settings == {"detection": {"workloads": {"moe*": {"min_effect": 0.05}}}}
        assert session.query(AuditEvent).filter_by(action="policy.set").count() == 1


def test_the_replay_command_prints_json_for_programs(story, database_url, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", database_url)
    done = CliRunner().invoke(replay_command, ["acme/kernels", "--json"])
    assert json.loads(done.output)["series"] == 6
