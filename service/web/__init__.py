"""The HTTP edge: webhooks, the runners' API, health."""
