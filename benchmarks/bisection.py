"""Judge the bisection engine on simulated ranges of our own and print the figures of the bar.

    python benchmarks/bisection.py --cases 20 --seed 7

Each case plays the same line protocol that `kernelwatch bisect-policy` speaks, against a range whose truth is known:
one culprit, two, none (the machine changed, or the slow phase is over), or a regression that was fixed beside a
lasting one; the machine drifts, some runs are slow, some commits do not build.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from dataclasses import dataclass, field

import numpy as np

from service.stats.bisect_cli import Conversation, play

SIZES = (8, 32, 128, 512, 1024)
RATIOS = (0.3, 0.5, 1.0, 2.0, 4.0, 10.0)
KINDS = {"one": 0.7, "two": 0.1, "none": 0.1, "fixed": 0.1}
DRIFT_SECONDS = 1800.0


@dataclass
class Range:
    """A range with known steps that answers the protocol's requests."""

    n: int
    ratio: float
    kind: str
    rng: np.random.Generator
    build_s: float = 120.0
    measure_s: float = 20.0
    drift: float = 0.5
    workers: int = 1
    layout: float = 0.0
    cap: int = 2000
    lines: list[str] = field(default_factory=list)
    built: dict[int, bool] = field(default_factory=dict)
    measured: int = 0
    answer: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng, n = self.rng, self.n
        self.noise = 0.02
        size = self.ratio * self.noise
        weight = np.where(rng.random(n) < 0.25, 8.0, 1.0)
        picks = 1 + rng.choice(n, size=3, replace=False, p=weight / weight.sum())
        self.steps: list[tuple[int, float]] = []
        if self.kind == "one":
            self.steps = [(int(picks[0]), size)]
        elif self.kind == "two":
            part = rng.uniform(0.4, 0.6)
            self.steps = [(int(picks[0]), part * size), (int(picks[1]), (1 - part) * size)]
        elif self.kind == "fixed":
            a, b, k = sorted(int(p) for p in picks)
            self.steps = [(a, size), (b, -size), (k, size)]
        self.lasting = {k for k, s in self.steps if s > 0} - (
            {min(k for k, _ in self.steps)} if self.kind == "fixed" else set()
        )
        self.level = np.zeros(n + 1)
        for at, step in self.steps:
            self.level[at:] += step
        self.level += rng.normal(0, self.layout * self.noise, n + 1) if self.layout else 0.0
        self.broken = {int(c) for c in np.flatnonzero(rng.random(n) < 0.05) if 0 < c < n}
        self.shift = rng.normal(0, self.drift * self.noise) + (
            size if self.kind == "none" and rng.random() < 0.5 else 0.0
        )
        self.mood = rng.normal(0, self.drift * self.noise, self.workers)
        self.clock = np.zeros(self.workers)
        counts = (max(20, math.ceil(20 / self.ratio**2)), max(8, math.ceil(20 / self.ratio**2)))
        before, after = (
            np.array([s + self.noise * self._run_noise() for _ in range(c)])
            for s, c in zip((0.0, size), counts, strict=True)
        )
        segments = [{"mean": float(v.mean()), "sd": float(v.std(ddof=1)), "count": len(v)} for v in (before, after)]
        case = {
            "op": "case", "n": n, "weights": [0.0, *weight.tolist()], "before": segments[0], "after": segments[1],
            "build_s": self.build_s, "measure_s": self.measure_s, "max_measurements": self.cap,
            "workers": self.workers, "layout_sd": self.layout * self.noise,
        }  # fmt: skip
        self.lines.append(json.dumps(case))

    def readline(self) -> str:
        """The next line for the engine."""
        return self.lines.pop(0)

    def flush(self) -> None:
        """Nothing is buffered."""

    def write(self, text: str) -> None:
        """A request of the engine."""
        ask = json.loads(text)
        if ask["op"] == "answer":
            self.answer = ask
            return
        if ask["op"] == "build":
            reply: dict[str, object] = {"ok": self._build(int(ask["commit"]), 0)}
        elif self.measured + sum(map(len, ask.get("batches", [ask.get("commits", [])]))) > self.cap:
            reply = {"error": "budget"}
        elif ask["op"] == "measure":
            reply = {"values": self._batch(ask["commits"], 0)}
        else:
            reply = {"values": [self._batch(b, w) for w, b in enumerate(ask["batches"])]}
            self.clock[:] = self.clock.max()
        self.lines.append(json.dumps(reply))

    def _run_noise(self) -> float:
        slow = abs(self.rng.normal(0, 3.0)) if self.rng.random() < 0.05 else 0.0
        return float(self.rng.normal(0, 0.8)) + slow

    def _pass(self, seconds: float, worker: int) -> None:
        keep = math.exp(-seconds / DRIFT_SECONDS)
        self.mood[worker] = keep * self.mood[worker] + self.rng.normal(
            0, self.drift * self.noise * math.sqrt(1 - keep * keep)
        )
        self.clock[worker] += seconds

    def _build(self, commit: int, worker: int) -> bool:
        if commit not in self.built:
            self._pass(self.build_s, worker)
            self.built[commit] = commit not in self.broken
        return self.built[commit]

    def _batch(self, commits: list[int], worker: int) -> list[float]:
        out = []
        for commit in commits:
            self._build(commit, worker)
            self.measured += 1
            self._pass(self.measure_s, worker)
            out.append(math.exp(self.level[commit] + self.shift + self.mood[worker] + self.noise * self._run_noise()))
        return out

    def outcome(self) -> str:
        """`right`, `part` (right, but a culprit is missing), `wrong`, `missed` or `open`."""
        verdict = self.answer.get("verdict")
        if verdict == "no_change":
            return "missed" if self.steps else "right"
        blamed = self.answer.get("culprits")
        if verdict != "culprit" or not isinstance(blamed, list) or not blamed:
            return "open"
        named: set[int] = set()
        for low, high, sign in blamed:
            inside = [k for k, s in self.steps if low < k <= high and (s > 0) == (sign > 0)]
            if not inside:
                return "wrong"
            named.update(inside)
        return "right" if self.lasting <= named else "part"


@dataclass(frozen=True)
class Row:
    """One played case."""

    kind: str
    n: int
    ratio: float
    outcome: str
    measured: int
    builds: int
    confidence: float
    cpu_s: float


def rows(cases: int, seed: int, layout: float) -> list[Row]:
    """Play the whole grid."""
    out = []
    for n in SIZES:
        for ratio in RATIOS:
            for index in range(cases):
                rng = np.random.default_rng([seed, n, int(10 * ratio), index])
                kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
                world = Range(n, ratio, kind, rng, layout=layout)
                start = time.process_time()
                play(Conversation(source=world, sink=world))  # type: ignore[arg-type]
                cpu_s = time.process_time() - start
                confidence = float(world.answer.get("confidence", 0.0))  # type: ignore[arg-type]
                out.append(Row(kind, n, ratio, world.outcome(), world.measured, len(world.built), confidence, cpu_s))
    return out


def share(items: list[Row], *outcomes: str) -> float:
    """Per cent of rows with one of these outcomes."""
    return 100.0 * sum(r.outcome in outcomes for r in items) / max(len(items), 1)


def table(found: list[Row]) -> str:
    """The bar, line by line."""
    strong = [r for r in found if r.ratio >= 1]
    none = [r for r in strong if r.kind == "none"]
    sure = [r for r in found if r.confidence >= 0.95 and r.outcome in {"right", "part", "wrong"}]
    lines = [
        ("wrong blame, all ratios", "<= 0.5 %", f"{share(found, 'wrong'):.2f} %"),
        ("right, ratio >= 1", ">= 99 %", f"{share(strong, 'right', 'part'):.1f} %"),
        ("right, all ratios", ">= 85 %", f"{share(found, 'right', 'part'):.1f} %"),
        ("all culprits, ratio >= 1", ">= 93 %", f"{share(strong, 'right'):.1f} %"),
        ("no_change where nobody is to blame", ">= 98 %", f"{share(none, 'right'):.1f} %"),
        ("measurements, mean, ratio >= 1", "<= 165", f"{statistics.mean(r.measured for r in strong):.0f}"),
        ("CPU per case, mean", "<= 0.5 s", f"{statistics.mean(r.cpu_s for r in found):.2f} s"),
        ("right where sure (>= 0.95)", ">= 95 %", f"{share(sure, 'right', 'part'):.1f} %"),
    ]
    for ratio, bar in ((1.0, 250), (2.0, 60), (4.0, 26), (10.0, 22)):
        single = [r.measured for r in found if r.ratio == ratio and r.kind == "one"]
        median = f"{statistics.median(single):.0f}" if single else "-"
        lines.append((f"measurements, median, one culprit, ratio {ratio:g}", f"<= {bar}", median))
    extra = statistics.mean(r.builds - math.log2(r.n) - 3 for r in strong if r.kind == "one")
    lines.append(("builds over log2 n + 3, one culprit", "<= 0", f"{extra:+.2f}"))
    width = max(len(line[0]) for line in lines)
    return "\n".join(f"{name:<{width}}  {bar:>9}  {value:>8}" for name, bar, value in lines)


def main() -> None:
    """Parse the options, play, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10, help="cases per size and ratio")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", type=float, default=0.0, help="own offset of builds, in noise sds")
    options = parser.parse_args()
    found = rows(options.cases, options.seed, options.layout)
    sys.stdout.write(f"{len(found)} cases, seed {options.seed}\n{table(found)}\n")


if __name__ == "__main__":
    main()
