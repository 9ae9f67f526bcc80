"""kill -9 the service at random moments of detection, bisection and delivery, and compare what it came to.

    python benchmarks/faults.py --deaths 100 --seed 1

Each story plants one slow commit; the device is simulated, the processes, their deaths, the database, the mail server
and the HTTP receiver are real (`tests/kills.py` says where a kill may strike). The first story is told undisturbed; all
others must come to the same. Printed: deaths by moment, stories whose verdict differs, messages lost, messages doubled
at the receiver, and how many were handed over again under a key that the receiver knew.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path

from sqlalchemy import Engine

sys.path.insert(0, str(Path(__file__).parents[1]))  # the story and its peers are the tests' own

from service.local.postgres import temporary_postgres
from service.store import schema
from service.store.engine import make_engine
from tests.kills import UNDISTURBED, Chances, Ending, play

AT_MARKS = 20  # deaths of one story at marks; the peers add theirs


def main() -> int:
    """Tell one story after another until enough deaths have been died; exit 1 if any of them changed the outcome."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--deaths", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable()  # the peers complain of senders that died
    deaths: Counter[str] = Counter()
    totals = Counter(dict.fromkeys(("stories", "verdicts that differ", "messages lost", "messages doubled"), 0))
    with temporary_postgres() as server:
        admin = make_engine(server.url())
        expected = _tell(admin, seed=options.seed, chances=UNDISTURBED)
        seed = options.seed
        while deaths.total() < options.deaths:
            seed += 1
            ending = _tell(admin, seed=seed, chances=Chances(at_marks=AT_MARKS))
            deaths.update(ending.deaths)
            totals["stories"] += 1
            totals["verdicts that differ"] += (ending.found, ending.verdicts) != (expected.found, expected.verdicts)
            for kind, one, other in (("lost", expected, ending), ("doubled", ending, expected)):
                totals[f"messages {kind}"] += (Counter(one.kept) - Counter(other.kept)).total()
            totals["handed over again under a known key"] += ending.sent_again
        admin.dispose()
    for moment, count in sorted(deaths.items()):
        sys.stdout.write(f"{count:5d}  died: {moment}\n")
    for what, count in totals.items():
        sys.stdout.write(f"{count:5d}  {what}\n")
    sys.stdout.write(f"undisturbed: {expected.verdicts}, {len(expected.kept)} messages\n")
    wrong = totals["verdicts that differ"] + totals["messages lost"] + totals["messages doubled"]
    return 1 if wrong else 0


def _tell(admin: Engine, *, seed: int, chances: Chances) -> Ending:
    name = f"faults_{seed}_{chances.at_marks}"
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    url = admin.url.set(database=name).render_as_string(hide_password=False)
    engine = make_engine(url)
    schema.upgrade(engine)
    engine.dispose()
    with tempfile.TemporaryDirectory() as folder:
        return play(url, Path(folder), seed=seed, chances=chances)


if __name__ == "__main__":
    sys.exit(main())
