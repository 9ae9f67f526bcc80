"""The tables, as SQLAlchemy models; `migrations/README.md` tells the schema in prose.

Bigint identity keys, timestamptz in UTC, SI units in column names, enums as text with CHECK constraints (adding a
value is then a cheap migration). Every natural key is a unique constraint: racing inserts use ON CONFLICT.
"""

from service.store.tables.base import Base
from service.store.tables.findings import (
    ApiToken,
    AuditEvent,
    Bisection,
    BisectionProbe,
    ChangePoint,
    Channel,
    Notification,
    Regression,
)
from service.store.tables.measuring import (
    AaComparison,
    Benchmark,
    Environment,
    GitCommit,
    JobHealth,
    Measurement,
    Repository,
    Run,
    Runner,
    Series,
    StaticCode,
    WebhookDelivery,
    Workload,
)

__all__ = [
    "AaComparison",
    "ApiToken",
    "AuditEvent",
    "Base",
    "Benchmark",
    "Bisection",
    "BisectionProbe",
    "ChangePoint",
    "Channel",
    "Environment",
    "GitCommit",
    "JobHealth",
    "Measurement",
    "Notification",
    "Regression",
    "Repository",
    "Run",
    "Runner",
    "Series",
    "StaticCode",
    "WebhookDelivery",
    "Workload",
]
