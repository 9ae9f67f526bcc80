"""Dashboards: pages and figures that show performance over time."""
