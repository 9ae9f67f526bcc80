"""Start-up refuses secrets that anybody could guess."""

from __future__ import annotations

import pytest

from service.settings import Settings, UnsafeSecretError, check_secrets

GOOD = "q3Zt0v9_TnL2-bXr7Ws1"


@pytest.mark.parametrize(
    "token", [None, "", "admin", "short", "changeme-changeme-changeme", "a" * 40, "kernelwatch-123456"]
)
def test_a_missing_or_guessable_admin_token_is_refused(token):
    with pytest.raises(UnsafeSecretError, match="KERNELWATCH_ADMIN_TOKEN"):
        check_secrets(Settings(admin_token=token, embedded=False))


def test_the_embedded_mode_may_go_without_but_not_with_a_bad_one():
    check_secrets(Settings(embedded=True))
    with pytest.raises(UnsafeSecretError):
        check_secrets(Settings(embedded=True, admin_token="secret"))


def test_a_guessable_registration_token_is_refused():
    with pytest.raises(UnsafeSecretError, match="KERNELWATCH_RUNNER_TOKEN"):
        check_secrets(Settings(admin_token=GOOD, runner_token="password"))


def test_random_secrets_are_taken():
    check_secrets(Settings(admin_token=GOOD, runner_token=GOOD[::-1]))


def test_the_application_does_not_start_with_a_guessable_secret():
    from service.web.app import create_app

    with pytest.raises(UnsafeSecretError):
        create_app(Settings(database_url="postgresql://x", redis_url="redis://x", admin_token="changeme"))


def test_a_secret_is_not_shown_with_the_settings():
    assert GOOD not in repr(Settings(admin_token=GOOD))
