"""Pure domain rules: states, policies, series keys. Standard library only."""
