"""The measurement protocol, pure over a Timer."""
