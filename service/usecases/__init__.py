"""Use cases: the verbs of the service, written against ports."""
