"""The database's history: Alembic environment and versions; README.md tells the schema in prose."""
