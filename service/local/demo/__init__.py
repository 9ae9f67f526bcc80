"""The demo: a real repository with planted commits, pushed to a real service, and what came of it."""
