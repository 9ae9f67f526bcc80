"""The rules of the house, checked: who imports whom, how long a file may be, what the README must name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli import COMMANDS, main
from service.settings import Settings

ROOT = Path(__file__).parents[2]
CODE = ("service", "runners", "dashboards", "kernels_under_test", "migrations", "tests", "benchmarks")
MAX_LINES = 400
TEXT_SUFFIXES = {".py", ".c", ".h", ".cu", ".md", ".toml", ".yml", ".txt", ".html", ".css", ".js", ".mako", ""}
FORBIDDEN = {
    "a path of one machine": r"/work/|\.\./shared|/home/[a-z]+/",
    "unfinished work": r"\b(TODO|FIXME|XXX)\b",
    "the number of an issue": r"\b[Ii]ssue #?\d+\b",
}


def files(*suffixes):
    """Every file of ours: what git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    else:  # an unpacked archive
        paths = [path for folder in CODE for path in (ROOT / folder).rglob("*")]
    return [path for path in paths if path.is_file() and path.suffix in suffixes]


@pytest.fixture(scope="module")
def readme():
    return (ROOT / "README.md").read_text()


def test_everybody_imports_only_whom_they_may():
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_no_file_is_too_long_to_read():
    long = {str(path.relative_to(ROOT)): count for path in files(".py") if (count := lines(path)) > MAX_LINES}
    assert long == {}


def lines(path):
    return len(path.read_text().splitlines())


def test_readme_names_every_setting(readme):
    for name, field in Settings.model_fields.items():
        variable = field.validation_alias or f"KERNELWATCH_{name.upper()}"
        assert f"`{variable}`" in readme, variable


def test_readme_names_every_variable_that_the_code_reads(readme):
    used = set()
    for path in files(".py"):
        if path.relative_to(ROOT).parts[0] in {"service", "runners", "dashboards"}:
            used |= set(re.findall(r"[\"'](KERNELWATCH_[A-Z_]+)[\"']", path.read_text()))
    assert used
    assert {name for name in used if f"`{name}`" not in readme} == set()


def test_readme_names_every_command(readme):
    assert {name for name in COMMANDS if f"`kernelwatch {name}" not in readme} == set()


def test_every_command_loads_and_says_what_it_does():
    from click.testing import CliRunner

    for name in COMMANDS:
        shown = CliRunner().invoke(main, [name, "--help"])
        assert shown.exit_code == 0, f"{name}: {shown.output}{shown.exception!r}"
        assert "Usage" in shown.output


def test_every_make_target_is_in_its_help_and_in_the_readme(readme):
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    assert targets == set(phony.split())
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(re.findall(r"^  make ([a-z-]+) +\S", shown.stdout, re.MULTILINE)) == targets
    assert {target for target in targets if f"make {target}" not in readme} == set()


def test_benchmarks_that_make_names_exist():
    named = re.findall(r"(benchmarks/\w+\.py)", (ROOT / "Makefile").read_text())
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what):
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in files(*TEXT_SUFFIXES)
        if path != Path(__file__) and "vendor" not in path.parts
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []


def test_pinned_requirements_are_pinned_and_name_no_host():
    for name in ("requirements.txt", "requirements-dev.txt"):
        for line in (ROOT / name).read_text().splitlines():
            if line and not line.startswith("#"):
                assert re.fullmatch(r"[a-z0-9.-]+(\[[a-z0-9,-]+\])?==[\w.+-]+", line), line
