"""`detect`: the detector on standard input and output, one JSON document each way.

In:  {"task": "batch" | "online" | "increment", "series": [{"id", "values", "se"?, "watch"?}]}
Out: batch {"changes": {id: [index, ...]}, "seconds": {id: s}}; online {"alarms": {id: [[index, at], ...]}};
     increment {"seconds": {id: [s, ...]}}. `watch` is the first point fed one at a time; seconds are of CPU.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from service.stats.changepoint import Detection, detect, detect_tail, new_alarms

Series = dict[str, Any]


def look(series: Series, stop: int | None = None) -> Detection:
    """Detect in the whole series, or in the tail of its first `stop` points."""
    se = series.get("se")
    values = series["values"]
    if stop is None:
        return detect(values, se=se)
    return detect_tail(values[:stop], se=None if se is None else se[:stop])


def batch(series: list[Series]) -> dict[str, Any]:
    """Every series once, whole."""
    if series:
        look(series[0])  # loads the library outside the clock
    changes, seconds = {}, {}
    for one in series:
        start = time.process_time()
        found = look(one)
        seconds[one["id"]] = time.process_time() - start
        changes[one["id"]] = [change.index for change in found.changes]
    return {"changes": changes, "seconds": seconds}


def online(series: list[Series]) -> dict[str, Any]:
    """Every series fed one commit at a time; what the history already shows is no new alarm."""
    alarms = {}
    for one in series:
        known = [change.index for change in look(one, one["watch"]).changes]
        rows = []
        for stop in range(one["watch"] + 1, len(one["values"]) + 1):
            for change in new_alarms(look(one, stop), known):
                known.append(change.index)
                rows.append([change.index, stop - 1])
        alarms[one["id"]] = rows
    return {"alarms": alarms}


def increment(series: list[Series]) -> dict[str, Any]:
    """Measure what taking in each of the points from `watch` on costs."""
    seconds = {}
    for one in series:
        look(one, one["watch"])
        cost = []
        for stop in range(one["watch"] + 1, len(one["values"]) + 1):
            start = time.process_time()
            look(one, stop)
            cost.append(time.process_time() - start)
        seconds[one["id"]] = cost
    return {"seconds": seconds}


Task = Callable[[list[Series]], dict[str, Any]]
TASKS: dict[str, Task] = {"batch": batch, "online": online, "increment": increment}


@click.command("detect")
@click.option("--stdin", "source", flag_value="stdin", required=True, help="Read one JSON document .")
def main(source: str) -> None:  # noqa: ARG001 (the only source there is; the flag keeps a bare call from hanging)
    """Find change points: one JSON document in, one out."""
    try:
        request = json.load(sys.stdin)
        answer = TASKS.get(request["task"])
        if answer is None:
            click.echo(f"unknown task {request['task']!r}; known: {', '.join(TASKS)}", err=True)
            sys.exit(3)
        result = answer(request["series"])
    except (ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"the document cannot be read: {error}") from error
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
