"""docker-compose.yml: valid by the parts of the Compose specification that it uses, and the same processes as `up`.

The schema below is our subset of https://github.com/compose-spec/compose-spec; anything that it does not name is an
error, so a misspelt key cannot hide.
"""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from service.local import commands

ROOT = Path(__file__).parents[2]

TEXT = {"type": "string", "minLength": 1}
WORDS = {"type": "array", "items": TEXT, "minItems": 1}
CONDITION = {
    "type": "object",
    "properties": {"condition": {"enum": ["service_healthy", "service_completed_successfully", "service_started"]}},
    "required": ["condition"],
    "additionalProperties": False,
}
DEVICE = {
    "type": "object",
    "properties": {"driver": TEXT, "count": {"type": ["integer", "string"]}, "capabilities": WORDS},
    "required": ["capabilities"],
    "additionalProperties": False,
}


def nested(*names, inner):
    for name in reversed(names):
        inner = {"type": "object", "properties": {name: inner}, "required": [name], "additionalProperties": False}
    return inner


SERVICE = {
    "type": "object",
    "properties": {
        "image": TEXT,
        "build": {
            "type": "object",
            "properties": {"context": TEXT, "dockerfile": TEXT},
            "required": ["context"],
            "additionalProperties": False,
        },
        "command": WORDS,
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "volumes": {"type": "array", "items": {"type": "string", "pattern": r"^[a-z-]+:/[\w/]+$"}},
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^(127\.0\.0\.1:)?\d+:\d+$"}},
        "depends_on": {"type": "object", "additionalProperties": CONDITION},
        "healthcheck": {
            "type": "object",
            "properties": {
                "test": WORDS,
                "interval": {"type": "string", "pattern": r"^\d+s$"},
                "timeout": {"type": "string", "pattern": r"^\d+s$"},
                "retries": {"type": "integer", "minimum": 1},
            },
            "required": ["test"],
            "additionalProperties": False,
        },
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "profiles": WORDS,
        "read_only": {"type": "boolean"},
        "cap_drop": WORDS,
        "security_opt": WORDS,
        "tmpfs": WORDS,
        "stop_signal": {"type": "string", "pattern": "^SIG[A-Z]+$"},
        "deploy": nested("resources", "reservations", "devices", inner={"type": "array", "items": DEVICE}),
    },
    "anyOf": [{"required": ["image"]}, {"required": ["build"]}],
    "additionalProperties": False,
}
COMPOSE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {"type": "object", "additionalProperties": SERVICE},
        "volumes": {"type": "object", "additionalProperties": {"type": "null"}},
    },
    "patternProperties": {"^x-": {}},
    "required": ["services"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_is_valid(compose):
    jsonschema.validate(compose, COMPOSE)


def test_schema_refuses_what_it_does_not_know(compose):
    compose = yaml.safe_load(yaml.safe_dump(compose))
    compose["services"]["web"]["comand"] = ["x"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(compose, COMPOSE)


def test_everything_that_is_named_exists(compose):
    for name, service in compose["services"].items():
        for other in service.get("depends_on", {}):
            assert other in compose["services"], name
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in compose["volumes"], name
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_waits_only_for_health_that_is_checked(compose):
    for service in compose["services"].values():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in compose["services"][other], other


def test_containers_run_exactly_the_commands_of_up(compose):
    name = "${KERNELWATCH_RUNNER_NAME:-gpu-runner}"
    expected = {
        "migrate": commands.migrate(),
        "web": commands.web(host="0.0.0.0", port=8080),
        "worker": commands.worker(),
        "beat": commands.beat(schedule=Path("/data/beat")),
        "catcher": commands.catcher(host="0.0.0.0", http_port=8025, smtp_port=1025),
        "runner-register": commands.register_runner(url="http://web:8080", pool="gpu", name=name, device="cuda"),
        "runner": commands.runner(),
    }
    ours = {name for name, service in compose["services"].items() if "build" in service}
    assert ours == set(expected)
    assert {name: tuple(compose["services"][name]["command"]) for name in ours} == expected


def test_runner_knows_neither_database_nor_admin_token(compose):
    for name in ("runner", "runner-register"):
        environment = compose["services"][name]["environment"]
        assert not {"DATABASE_URL", "KERNELWATCH_ADMIN_TOKEN", "POSTGRES_PASSWORD"} & environment.keys()
        assert compose["services"][name]["profiles"] == ["gpu"]


def test_no_secret_has_a_default(compose):
    text = (ROOT / "docker-compose.yml").read_text()
    for secret in ("POSTGRES_PASSWORD", "KERNELWATCH_ADMIN_TOKEN", "KERNELWATCH_RUNNER_TOKEN"):
        uses = re.findall(rf"\$\{{{secret}[^}}]*\}}", text)
        assert uses
        assert all(use.startswith(f"${{{secret}:?") for use in uses)


@pytest.mark.parametrize("dockerfile", ["service/Dockerfile", "runners/Dockerfile"])
def test_images_do_not_run_as_root_and_copy_what_exists(dockerfile):
    lines = (ROOT / dockerfile).read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] not in {"root", "0"}
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert all((ROOT / source).exists() for source in line.split()[1:-1]), line
