from pathlib import Path

import runners
from runners.measure import epoch

ROOT = Path(runners.__file__).parent


def test_whoever_edits_the_stopwatch_decides_about_its_epoch():
    assert epoch.stopwatch_hash(ROOT) == epoch.STOPWATCH_HASH, (
        "measuring code changed: if figures may move, raise HARNESS_EPOCH; in any case set STOPWATCH_HASH in "
        f"runners/measure/epoch.py to {epoch.stopwatch_hash(ROOT)!r}"
    )


def test_the_hash_sees_every_byte_of_every_file(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    before = epoch.stopwatch_hash(tmp_path, ("a.py", "b.py"))
    (tmp_path / "b.py").write_text("x = 2\n")
    assert epoch.stopwatch_hash(tmp_path, ("a.py", "b.py")) != before
