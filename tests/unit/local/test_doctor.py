"""The doctor: one finding per dependency, and advice where something is missing."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from service.cli import main
from service.local import doctor
from service.local.doctor import Health, examine
from service.settings import Settings


@pytest.fixture
def settings(tmp_path, monkeypatch):
    for name in ("DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    return Settings(data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


def found(settings):
    return {finding.what: finding for finding in examine(settings)}


def test_names_every_dependency_once_and_changes_nothing(settings, tmp_path):
    names = [finding.what for finding in examine(settings)]
    assert len(names) == len(set(names)) == 12
    assert list(tmp_path.iterdir()) == []


def test_machine_that_runs_these_tests_has_what_is_needed(settings):
    assert [f for f in found(settings).values() if f.health is Health.MISSING] == []


def test_missing_tool_is_named_with_advice(settings, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    findings = found(settings)
    assert findings["git"].health is Health.MISSING
    assert "install git" in findings["git"].advice
    assert findings["openmp"].health is Health.MISSING


def test_servers_that_do_not_answer_are_missing(settings):
    away = settings.model_copy(
        update={"database_url": "postgresql+psycopg2://x@127.0.0.1:1/x", "redis_url": "redis://127.0.0.1:1"}
    )
    findings = found(away)
    assert "refused" in findings["database"].detail
    assert findings["database"].advice == "start that server, or unset DATABASE_URL"
    assert findings["broker"].health is Health.MISSING


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_cannot_be_written_is_missing(settings, tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert found(settings)["data folder"].health is Health.MISSING
    finally:
        tmp_path.chmod(0o700)


def test_command_exits_with_1_when_something_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELWATCH_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    shown = CliRunner().invoke(main, ["doctor"])
    assert shown.exit_code == 1
    assert "missing broker" in shown.output
    assert "-> start that server, or unset REDIS_URL" in shown.output
