"""Settings from the environment, read once in a composition root and passed on as an argument."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


def _xdg(variable: str, fallback: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / fallback) / "kernelwatch"


class Settings(BaseSettings):
    """Every setting of the service; each is described in the README."""

    model_config = SettingsConfigDict(env_prefix="KERNELWATCH_", extra="ignore", populate_by_name=True)

    database_url: str | None = Field(default=None, validation_alias="DATABASE_URL")
    redis_url: str | None = Field(default=None, validation_alias="REDIS_URL")
    data_dir: Path = Field(default_factory=lambda: _xdg("XDG_DATA_HOME", ".local/share"))
    cache_dir: Path = Field(default_factory=lambda: _xdg("XDG_CACHE_HOME", ".cache"))
    host: str = "127.0.0.1"
    port: int = 8080
    public_url: str | None = None
    admin_token: SecretStr | None = None
    runner_token: SecretStr | None = None
    embedded: bool = False
    webhook_fetch_s: float = 5.0
    lease_s: float = 90.0
    max_attempts: int = 3
    log_level: str = "INFO"
    log_format: str = "console"
    min_effect: float = 0.02
    bridge_commits: int = Field(default=5, ge=0, le=100)
    mail_from: str = "kernelwatch@localhost"
    smtp_url: str | None = None
    catcher_url: str | None = None


MIN_SECRET_LENGTH = 16
WELL_KNOWN = frozenset({"admin", "changeme", "default", "kernelwatch", "password", "secret", "test", "token"})


class UnsafeSecretError(ValueError):
    """The service will not start with a secret that is missing or that anybody could guess."""


def check_secrets(settings: Settings) -> None:
    """Refuse a missing, short or well-known secret; only the embedded mode, which makes its own, may go without."""
    named = {"KERNELWATCH_ADMIN_TOKEN": settings.admin_token, "KERNELWATCH_RUNNER_TOKEN": settings.runner_token}
    if settings.admin_token is None and not settings.embedded:
        raise UnsafeSecretError("set KERNELWATCH_ADMIN_TOKEN to a long random text (`openssl rand -hex 32`)")
    for name, secret in named.items():
        if secret is None:
            continue
        value = secret.get_secret_value()
        letters = "".join(character for character in value.lower() if character.isalpha())
        for word in WELL_KNOWN:
            letters = letters.replace(word, "")
        if len(value) < MIN_SECRET_LENGTH or len(set(value)) < MIN_SECRET_LENGTH // 2 or not letters:
            raise UnsafeSecretError(f"{name} is too easy to guess: use a long random text (`openssl rand -hex 32`)")
