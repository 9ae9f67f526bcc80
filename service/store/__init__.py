"""The store: the only place that speaks SQL."""
