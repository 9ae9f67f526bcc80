"""The compiled part of the detector, seen from Python: structures as in `_changepoint.c`, and one call."""

from __future__ import annotations

import ctypes
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SOURCE = Path(__file__).with_name("_changepoint.c")
LIBRARY = SOURCE.with_suffix(".so")
BY_HAND = "by hand"  # compiled without the build hook, by somebody who knows what they do

SETTING_DOUBLES = (
    "clip_sd",
    "sd_floor",
    "candidate_z",
    "penalty",
    "gate",
    "scan",
    "min_effect",
    "min_sd",
    "run_slack",
    "place_margin",
    "trend_cost",
)
SETTING_INTS = ("min_segment", "reach")


class LibraryMissingError(RuntimeError):
    """The compiled part of the detector is not there."""


class CSettings(ctypes.Structure):
    """`kw_settings`."""

    _fields_ = (
        *((f, ctypes.c_double) for f in SETTING_DOUBLES),
        *((f, ctypes.c_int) for f in SETTING_INTS),
    )


class CChange(ctypes.Structure):
    """`kw_change`: levels and their difference's standard error on the log scale."""

    _fields_ = (
        *((f, ctypes.c_int) for f in ("index", "n_before", "n_after")),
        *((f, ctypes.c_double) for f in ("before", "after", "se", "z", "over_line")),
    )


class CLevel(ctypes.Structure):
    """`kw_level`."""

    _fields_ = (
        ("start", ctypes.c_int),
        ("n", ctypes.c_int),
        ("at", ctypes.c_double),
        ("se", ctypes.c_double),
    )


class CFacts(ctypes.Structure):
    """`kw_facts`."""

    _fields_ = tuple(
        (f, ctypes.c_double)
        for f in (
            "noise_sd",
            "rho",
            "slope",
            "slope_z",
            "se_share",
            "mode_gap",
            "mode_share",
            "mode_separation",
        )
    )


def sources_hash() -> str:
    """Hash the C file and its headers, as `hatch_build.py` does when it builds."""
    digest = hashlib.sha256()
    for part in (SOURCE, *sorted(SOURCE.parent.glob("*.h"))):
        digest.update(part.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _library() -> Any:
    """Load the library once, on first use."""
    if not LIBRARY.exists():
        raise LibraryMissingError(
            f"{LIBRARY.name} is not built: run `pip install -e .`, which compiles {SOURCE.name} beside itself"
        )
    library = ctypes.CDLL(str(LIBRARY))
    library.kw_sources.restype = ctypes.c_char_p
    built_from = library.kw_sources().decode()
    if built_from not in {sources_hash(), BY_HAND}:
        raise LibraryMissingError(f"{LIBRARY.name} was built from other sources: run `pip install -e .`")
    pointer = ctypes.c_void_p
    library.kw_detect.argtypes = (pointer, pointer, ctypes.c_int, pointer, pointer, pointer, pointer)
    library.kw_detect.restype = ctypes.c_int
    return library


def _address(array: NDArray[np.float64]) -> int:
    return int(array.__array_interface__["data"][0])


def run(
    values: NDArray[np.float64], se: NDArray[np.float64] | None, settings: CSettings
) -> tuple[int, ctypes.Array[CChange], ctypes.Array[CLevel], CFacts]:
    """Call `kw_detect`; the first item is what it returned."""
    n = values.size
    room = n // settings.min_segment + 1
    changes, levels, facts = (CChange * room)(), (CLevel * room)(), CFacts()
    count = _library().kw_detect(
        _address(values),
        None if se is None else _address(se),
        n,
        ctypes.byref(settings),
        changes,
        levels,
        ctypes.byref(facts),
    )
    return count, changes, levels, facts
