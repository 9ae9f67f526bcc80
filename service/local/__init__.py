"""The embedded default: Postgres, broker, processes and the demo on one machine."""
