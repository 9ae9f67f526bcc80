"""The detector beside Apache Otava and ruptures, all in one run: `python benchmarks/detect.py`.

Every detector gets the same simulated series (`service.stats.simulate`: eight kinds of noise, steps of 2 to 8 sd, quiet
series, one point at a time) and is timed on the same 500-point series, CPU seconds inside the detector. The peers are
installed on demand into `.state/bench-peers`; without a package index the table has our row only. A step counts as
found when a change lies within five points of it. The fleet part has no peer: none of them groups.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS_DIR = ROOT / ".state" / "bench-peers"
PACKAGES = {"otava": "apache-otava==0.8.0", "ruptures": "ruptures==1.1.10"}
MARGIN = 5
SEED = 20


def main() -> int:
    """Print the table; 1 when ours is behind a peer in F1 or not a hundred times as fast as Otava."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=PACKAGES, help="serve one request on standard input (used by itself)")
    parser.add_argument("--without-peers", action="store_true")
    arguments = parser.parse_args()
    if arguments.peer:
        return serve(PEER_DETECTORS[arguments.peer]())
    sys.path.insert(0, str(ROOT))
    stepped, quiet, timed = stepped_series(), quiet_series(), timed_series()
    rows = {"kernelwatch": ours(stepped + quiet + timed)}
    if not arguments.without_peers:
        for name in PACKAGES:
            answer = ask_peer(name, stepped + quiet + timed[:10])
            if answer is not None:
                rows[name] = answer
    say(f"{'':12} {'F1':>5} {'P':>5} {'R':>5} {'alarms/1,000 quiet':>19} {'1,000 x 500 points':>19}")
    scores = {name: report(name, answer, stepped, quiet) for name, answer in rows.items()}
    one_at_a_time()
    fleet()
    best = max((f1 for name, (f1, _) in scores.items() if name != "kernelwatch"), default=0.0)
    slow = "otava" in scores and scores["otava"][1] < 100 * scores["kernelwatch"][1]
    return int(scores["kernelwatch"][0] < best or slow)


def say(line: str) -> None:
    """Write one line of the report."""
    sys.stdout.write(line + "\n")


Series = dict[str, Any]
Answer = dict[str, Any]


def stepped_series() -> list[Series]:
    """Return series of every kind of noise with one to three steps of 2 to 8 sd."""
    import numpy as np

    from service.stats.simulate import Noise, series

    rng, out = np.random.default_rng(SEED), []
    for kind in Noise:
        for i in range(30):
            n, cv = (60, 120, 250)[i % 3], (0.003, 0.01, 0.03)[i // 3 % 3]
            count = 1 + i % min(3, n // 40)
            places = [int((j + 1) * n / (count + 1) + rng.integers(-5, 6)) for j in range(count)]
            steps = {place: float(rng.choice([-1, 1]) * rng.choice([2, 3, 5, 8]) * cv) for place in places}
            values = series(rng, n, steps=steps, cv=cv, kind=kind, base=1e-4)
            out.append({"id": f"step-{kind}-{i}", "values": values.tolist(), "truth": places})
    return out


def quiet_series() -> list[Series]:
    """Return series of every kind of noise without a step."""
    import numpy as np

    from service.stats.simulate import Noise, series

    rng = np.random.default_rng(SEED + 1)
    return [
        {"id": f"quiet-{kind}-{i}", "values": series(rng, n, steps={}, cv=0.01, kind=kind).tolist(), "truth": []}
        for kind in Noise
        for i, n in enumerate((100, 200, 300) * 10)
    ]


def timed_series() -> list[Series]:
    """Return a thousand series of 500 points, half of them with two steps."""
    import numpy as np

    from service.stats.simulate import series

    rng, out = np.random.default_rng(SEED + 2), []
    for i in range(1000):
        steps = {170: 0.02, 330: -0.05} if i % 2 else {}
        out.append({"id": f"time-{i}", "values": series(rng, 500, steps=steps, cv=0.01).tolist(), "truth": []})
    return out


def ours(series: list[Series]) -> Answer:
    """Run our detector in this process."""
    from service.stats.detect_cli import batch

    return batch(series)


def ask_peer(name: str, series: list[Series]) -> Answer | None:
    """Run a peer in a virtual environment of its own; None where it cannot be installed."""
    home = PEERS_DIR / name
    python = home / "bin" / "python"
    if not (home / "ok").exists():
        venv.create(home, with_pip=True, clear=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", PACKAGES[name]], check=False, capture_output=True)
        if done.returncode:
            say(f"{name} cannot be installed here: {done.stderr.decode().strip().splitlines()[-1:]}")
            return None
        (home / "ok").touch()
    request = json.dumps([{"id": one["id"], "values": one["values"]} for one in series])
    done = subprocess.run([python, __file__, "--peer", name], input=request.encode(), capture_output=True, check=True)
    answer: Answer = json.loads(done.stdout)
    return answer


def otava() -> Callable[[list[float]], Iterable[int]]:
    """Apache Otava with its defaults."""
    from otava.analysis import compute_change_points

    return lambda values: [
        change.index for change in compute_change_points(values, max_pvalue=0.001, min_magnitude=0.0)[0]
    ]


def ruptures() -> Callable[[list[float]], Iterable[int]]:
    """Kernel change points of ruptures, penalty ln n, on values scaled by their lag-one differences."""
    import numpy as np
    import ruptures as rpt

    def detect(values: list[float]) -> list[int]:
        y = np.asarray(values)
        scale = 1.4826 * np.median(np.abs(np.diff(y) - np.median(np.diff(y)))) / math.sqrt(2) or np.std(y) or 1.0
        scaled = ((y - np.median(y)) / scale).reshape(-1, 1)
        cuts: list[int] = rpt.KernelCPD(kernel="rbf", min_size=2).fit(scaled).predict(pen=math.log(len(y)))
        return cuts[:-1]

    return detect


PEER_DETECTORS = {"otava": otava, "ruptures": ruptures}


def serve(detect: Callable[[list[float]], Iterable[int]]) -> int:
    """Answer the request on standard input."""
    changes, seconds = {}, {}
    for one in json.load(sys.stdin):
        start = time.process_time()
        changes[one["id"]] = [int(i) for i in detect(one["values"])]
        seconds[one["id"]] = time.process_time() - start
    json.dump({"changes": changes, "seconds": seconds}, sys.stdout)
    return 0


def report(name: str, answer: Answer, stepped: list[Series], quiet: list[Series]) -> tuple[float, float]:
    """Print one detector's row; return its F1 and its seconds for a thousand series."""
    hits = alarms = truths = 0
    for one in stepped:
        left = list(answer["changes"][one["id"]])
        alarms += len(left)
        truths += len(one["truth"])
        for truth in one["truth"]:
            near = min(left, key=lambda index: abs(index - truth), default=None)
            if near is not None and abs(near - truth) <= MARGIN:
                left.remove(near)
                hits += 1
    precision, recall = hits / max(1, alarms), hits / truths
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    wrong = sum(len(answer["changes"][one["id"]]) for one in quiet)
    rate = 1000 * wrong / sum(len(one["values"]) for one in quiet)
    times = [s for key, s in answer["seconds"].items() if key.startswith("time-")]
    seconds = 1000 * sum(times) / len(times)
    say(f"{name:12} {f1:5.3f} {precision:5.2f} {recall:5.2f} {rate:19.3f} {seconds:17.3f} s")
    return f1, seconds


def one_at_a_time() -> None:
    """Print how soon steps are seen when points come one by one, and how often nothing is seen as something."""
    import numpy as np

    from service.stats.detect_cli import online
    from service.stats.simulate import Noise, series

    rng = np.random.default_rng(SEED + 3)
    for size in (2, 3, 5):
        fed = [
            {
                "id": f"{kind}-{i}",
                "watch": 50,
                "values": series(rng, 125, steps={80: size * 0.01}, cv=0.01, kind=kind).tolist(),
            }
            for kind in Noise
            for i in range(5)
        ]
        alarms = online(fed)["alarms"].values()
        delays = [at - 79 for rows in alarms for index, at in rows if abs(index - 80) <= MARGIN]
        wrong = sum(abs(index - 80) > MARGIN for rows in alarms for index, _ in rows)
        say(
            f"one at a time, {size} sd: {len(delays)} of {len(fed)} found, median delay {np.median(delays):.0f}, "
            f"{1000 * wrong / (75 * len(fed)):.2f} false alarms per 1,000"
        )


def fleet() -> None:
    """Print what grouping makes of a simulated fleet."""
    import numpy as np

    from service.stats.changepoint import detect
    from service.stats.grouping import SeriesChange, group
    from service.stats.simulate import fleet as simulate

    fleet = simulate(np.random.default_rng(SEED + 4))
    changes = [
        SeriesChange(str(k), fleet.families[k], c.index, c.effect, c.z, c.p_value)
        for k, values in enumerate(fleet.values)
        for c in detect(values).changes
    ]
    alerts = group(changes, series=len(fleet.values), families=len(set(fleet.families)))
    exact = len({alert.commit for alert in alerts} & set(fleet.truth))
    say(f"fleet of 2,000 x 200: {len(changes)} changes, {len(alerts)} alerts, {exact} of {len(fleet.truth)} exact")


if __name__ == "__main__":
    sys.exit(main())
