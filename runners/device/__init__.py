"""Devices behind one Protocol: lock, clocks, fingerprint, guard, counters."""
