"""A library that was built from other sources is refused: its structures would be read wrongly, without an error."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from service.stats import _native
from service.stats.changepoint import detect


@pytest.fixture
def stale(tmp_path, monkeypatch):
    library = tmp_path / "_changepoint.so"
    command = ["cc", "-shared", "-fPIC", "-std=c11", '-DKW_SOURCES="0123456789abcdef"', "-o", library, _native.SOURCE]
    subprocess.run([*command, "-lm"], check=True)
    monkeypatch.setattr(_native, "LIBRARY", library)
    _native._library.cache_clear()
    yield
    _native._library.cache_clear()


def test_a_stale_library_is_refused_with_what_to_run(stale):
    with pytest.raises(_native.LibraryMissingError, match=r"other sources: run `pip install -e \.`"):
        detect(np.ones(9))


def test_a_missing_library_is_refused_with_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setattr(_native, "LIBRARY", tmp_path / "none.so")
    _native._library.cache_clear()
    with pytest.raises(_native.LibraryMissingError, match=r"is not built: run `pip install -e \.`"):
        detect(np.ones(9))
    _native._library.cache_clear()
