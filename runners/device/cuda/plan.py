"""How a workload is timed on a GPU: by graph replay or plain launches, in a warm or a cold cache, and why.

Graph replay takes the host out of the interval. What cannot be captured (a kernel that allocates, synchronises, or runs
on a stream of its own) is launched plainly, and the plan says so with the reason: the method is part of what a figure
means, so a figure by plain launches joins another series than one by graph replay.

Which way a cache is kept cold depends on sizes only, never on measured time, so that it is the same in every run:
buffers large enough are rotated until they exceed the cache several times; small ones are flushed out before each
single launch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from runners.api import Cache
from runners.device.cuda.timer import (
    FLUSH_FACTOR,
    LAUNCHES_MAX,
    ROTATE_FACTOR,
    CaptureError,
    CudaTimer,
    Interval,
    launches_per_sample,
    rotation_count,
)

COPIES_MAX = 64
PLAIN_SHARE = 8  # plain launches enclose so many times fewer: the driver's queue holds about a thousand
EMPTY_SHARE = 0.2  # a replay this much shorter than its launches, and without their nodes, does not hold them
_NODE = re.compile(r'^\s*"?graph_\d+_node_\d+"?\s*\[', re.MULTILINE)
_SYMBOL = re.compile(r"([A-Za-z_$][\w$]*)\\?<\\?<\\?<")


class Method(StrEnum):
    """How the launches of an interval reach the device."""

    GRAPH = "graph"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An interval, how it came to be, and what keeps its cache cold."""

    interval: Interval
    method: Method
    asked: int  # launches that a graph would enclose, whatever the method makes of it
    reason: str = ""  # why it is not graph replay
    symbols: tuple[str, ...] = ()  # of the kernels that really run, where the graph tells
    working_set_bytes: int = 0  # what is touched before the same bytes are used again
    cold_bytes: int = 0  # what must be touched for that; 0 when the cache is meant to be warm


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A prepared kernel as the planner sees it; `again` prepares another copy with buffers of its own."""

    run: Callable[[], object]
    again: Callable[[], Callable[[], object]] | None
    buffer_bytes: int
    cache: Cache
    launches: int | None = None  # as many as elsewhere in this session, so that both sides of a pair agree


def make_plan(timer: CudaTimer, wanted: Wanted, *, launch_s: float) -> Plan:
    """Decide how `wanted` is timed, knowing about how long one launch takes."""
    launches = wanted.launches or launches_per_sample(launch_s)
    if wanted.cache is Cache.WARM:
        return _by_graph_or_plain(timer, [wanted.run], asked=launches, launches=launches, launch_s=launch_s)
    l2_bytes = timer.events.l2_bytes
    copies = rotation_count(wanted.buffer_bytes, l2_bytes)
    if wanted.again is None or wanted.buffer_bytes <= 0 or copies > COPIES_MAX:
        flush = FLUSH_FACTOR * l2_bytes
        return _by_graph_or_plain(
            timer, [wanted.run], asked=launches, launches=1, launch_s=launch_s, flush_bytes=flush, cold=flush
        )
    runs = [wanted.run, *(wanted.again() for _ in range(copies - 1))]
    whole = copies * max(1, math.ceil(min(launches, LAUNCHES_MAX) / copies))
    return _by_graph_or_plain(
        timer,
        runs,
        asked=launches,
        launches=whole,
        launch_s=launch_s,
        touched=copies * wanted.buffer_bytes,
        cold=ROTATE_FACTOR * l2_bytes,
    )


def _by_graph_or_plain(
    timer: CudaTimer,
    runs: list[Callable[[], object]],
    *,
    asked: int,
    launches: int,
    launch_s: float,
    flush_bytes: int = 0,
    touched: int = 0,
    cold: int = 0,
) -> Plan:
    """`runs` in turn, `launches` in all; replayed from a graph when one can hold them."""
    turns = max(1, launches // len(runs))
    try:
        captured = timer.events.capture(runs * turns)
        interval = Interval(captured.replay, calls=1, launches=launches, flush_bytes=flush_bytes)
        nodes = len(_NODE.findall(captured.dot))
        replay_s = min(timer.time_interval(interval, count=3).wall_s)
        if nodes < launches and replay_s < EMPTY_SHARE * launch_s:
            raise CaptureError("the graph does not hold the launches: they run on a stream of their own")  # noqa: TRY301
        method, reason, symbols = Method.GRAPH, "", symbols_of(captured.dot)
    except CaptureError as error:
        method, reason, symbols = Method.PLAIN, str(error), ()
        turns = max(1, turns // PLAIN_SHARE)
        interval = Interval(_in_turn(runs), calls=turns, launches=turns * len(runs), flush_bytes=flush_bytes)
    return Plan(
        interval=interval,
        method=method,
        asked=asked,
        reason=reason,
        symbols=symbols,
        working_set_bytes=flush_bytes or touched,
        cold_bytes=cold,
    )


def _in_turn(runs: list[Callable[[], object]]) -> Callable[[], object]:
    if len(runs) == 1:
        return runs[0]

    def run_all() -> None:
        for run in runs:
            run()

    return run_all


def symbols_of(dot: str) -> tuple[str, ...]:
    """The kernels that a graph's description names (before their launch configuration), each once, in order."""
    return tuple(dict.fromkeys(_SYMBOL.findall(dot)))
