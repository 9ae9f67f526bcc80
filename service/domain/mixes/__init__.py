"""Model mixes: how often each kernel runs in one step of a model, so that a change reads "+1.8 % of the decode step".

A mix is a small JSON file beside this module: a name, terms (problem, axes, count) and, where it holds less than its
name may promise, a note that says so. Counts are layers times calls of a layer; communication, embedding and sampling
are left out, so a step is time on kernels, not the latency served.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

Axis = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One kernel of a step; `problem_key` is written like a workload key, with the problem's name."""

    problem_key: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A model's step."""

    name: str
    device: str
    terms: tuple[Term, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The time of a step and each term's share of it; `missing` terms have no time, so the step is a lower bound."""

    time_s: float
    share: Mapping[str, float]
    missing: tuple[str, ...]


def problem_key(problem: str, axes: Mapping[str, Axis]) -> str:
    """`gemm[k=4096,m=64,n=6144]`, axes in alphabetical order."""
    return f"{problem}[{','.join(f'{name}={axes[name]}' for name in sorted(axes))}]"


def load_mixes() -> tuple[Mix, ...]:
    """Every mix, by name."""
    files = [entry for entry in resources.files(__name__).iterdir() if entry.name.endswith(".json")]
    return tuple(sorted((read_mix(entry.read_text()) for entry in files), key=lambda mix: mix.name))


def read_mix(text: str) -> Mix:
    """A mix from its JSON."""
    raw = json.loads(text)
    terms = tuple(
        Term(problem_key=problem_key(term["problem"], term["axes"]), count=int(term["count"])) for term in raw["terms"]
    )
    return Mix(name=raw["name"], device=raw["device"], terms=terms, note=raw.get("note", ""))


def weigh(mix: Mix, time_s: Mapping[str, float]) -> Step:
    """The step's time from the time of each problem key (the best or the chosen implementation's)."""
    known = {
        term.problem_key: term.count * time_s[term.problem_key] for term in mix.terms if term.problem_key in time_s
    }
    total_s = sum(known.values())
    return Step(
        time_s=total_s,
        share={key: part / total_s for key, part in known.items()} if total_s > 0.0 else {},
        missing=tuple(term.problem_key for term in mix.terms if term.problem_key not in time_s),
    )


def effect_on_step(step: Step, change: Mapping[str, float]) -> float:
    """Relative change of the step when each problem key in `change` takes (1 + value) times as long."""
    return sum(step.share.get(key, 0.0) * value for key, value in change.items())
