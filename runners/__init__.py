"""Runners: measure one commit on one device, quietly."""
