"""Kill the service at random moments of detection, bisection and delivery, and compare what it came to.

    python benchmarks/faults.py --deaths 100 --seed 1

Each story plants one slow commit; the device is simulated, the database, the mail server and the HTTP receiver are
real. Deaths are drawn at commits, between a claim and its measurement, and before and after a message is handed over.
Printed: deaths by moment, verdicts that differ, messages lost, messages doubled at the receiver, and how many were
handed over again under the key that the receiver knew.
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
from service.store.engine import make_engine, make_sessions
from tests.faults import CULPRIT, Ending, FaultyStory
from tests.peers import Peers

EXPECTED_FOUND = {CULPRIT: "attributed"}
EXPECTED_MESSAGES = Counter({("email", "opened"): 1, ("email", "attributed"): 1}) + Counter(
    {("slack", "opened"): 1, ("slack", "attributed"): 1}
)


def main() -> int:
    """Tell one story after another until enough deaths have been died; exit 1 if any of them changed the outcome."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--deaths", type=int, default=100)
    parser.add_argument("--chance", type=float, default=0.12, help="of dying at each moment")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    deaths: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    with temporary_postgres() as server:
        admin = make_engine(server.url())
        seed = options.seed
        while sum(deaths.values()) < options.deaths:
            ending, arrived = _tell(admin, seed=seed, chance=options.chance)
            deaths.update(ending.deaths)
            totals["stories"] += 1
            totals["verdicts that differ"] += ending.found != EXPECTED_FOUND
            totals["messages lost"] += (EXPECTED_MESSAGES - arrived).total()
            totals["messages doubled"] += (arrived - EXPECTED_MESSAGES).total()
            totals["handed over again under a known key"] += ending.sent_again
            seed += 1
        admin.dispose()
    for moment, count in sorted(deaths.items()):
        sys.stdout.write(f"{count:5d}  died {moment}\n")
    for what, count in totals.items():
        sys.stdout.write(f"{count:5d}  {what}\n")
    wrong = totals["verdicts that differ"] + totals["messages lost"] + totals["messages doubled"]
    return 1 if wrong else 0


def _tell(admin: Engine, *, seed: int, chance: float) -> tuple[Ending, Counter[tuple[str, str]]]:
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE faults_{seed}")
    engine = make_engine(admin.url.set(database=f"faults_{seed}").render_as_string(hide_password=False))
    schema.upgrade(engine)
    with tempfile.TemporaryDirectory() as folder:
        peers = Peers(Path(folder))
        try:
            ending = FaultyStory(make_sessions(engine), peers, seed=seed, chance=chance).play()
        finally:
            peers.close()
            engine.dispose()
    arrived = Counter((kind, "attributed" if "Culprit: " in title else "opened") for kind, title in ending.caught)
    return ending, arrived


if __name__ == "__main__":
    sys.exit(main())
