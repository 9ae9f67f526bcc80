"""Adapters: the only place that speaks to networks and subprocesses."""
