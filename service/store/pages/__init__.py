"""What the dashboard's pages read: one query per list, each on an index, rows out as frozen dataclasses.

No page reads raw samples unless it draws them, and a page reads one snapshot: a report that arrives while a page is
being rendered never mixes two runs in it.
"""

from service.store.pages.snapshot import Pages

__all__ = ["Pages"]
