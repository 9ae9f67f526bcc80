"""The service: decides what to measure, what the numbers mean, and whom to tell."""
