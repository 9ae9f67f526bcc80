"""Run migrations one at a time: under an advisory lock, with lock and statement time-outs.

Two services that start at once would otherwise both create the same table. The lock belongs to the session, so a
process that dies gives it back. A migration that cannot get a table lock fails quickly instead of queueing every
reader behind itself.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, text

from service.store.engine import make_engine
from service.store.tables import Base

ADVISORY_LOCK = 7_281_553_904  # any number that nothing else in this database uses
LOCK_TIMEOUT = "10s"
STATEMENT_TIMEOUT = "15min"


def run_offline() -> None:
    """Print the SQL instead of running it (`alembic upgrade --sql`)."""
    context.configure(dialect_name="postgresql", target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


def run_online(connection: Connection) -> None:
    """Migrate over `connection`, alone."""
    connection.execute(text(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'"))
    connection.execute(text("SET lock_timeout = 0"))  # another migration may take its time
    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_LOCK})
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.commit()
    try:
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            compare_server_default=True,
            transaction_per_migration=True,
        )
        with context.begin_transaction():
            context.run_migrations()
    finally:
        if connection.in_transaction():
            connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})
        connection.commit()


def main() -> None:
    """Use the connection or URL that the caller put into the configuration."""
    if context.is_offline_mode():
        run_offline()
        return
    given = context.config.attributes.get("connection")
    if given is not None:
        run_online(given)
        return
    url = context.config.get_main_option("sqlalchemy.url")
    if not url:
        raise SystemExit("set DATABASE_URL and use `kernelwatch migrate`")
    engine = make_engine(url, application_name="kernelwatch-migrate")
    try:
        with engine.connect() as connection:
            run_online(connection)
    finally:
        engine.dispose()


main()
