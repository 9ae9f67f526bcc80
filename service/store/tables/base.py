"""What every table shares: naming, column types, keys, and enum checks."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    Identity,
    Integer,
    MetaData,
    Text,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    """A CHECK that holds a text column to the values of an enum."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


class Base(DeclarativeBase):
    """Declares how Python types become columns."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012  # SQLAlchemy reads it as a class attribute
        int: BigInteger,
        str: Text,
        float: Double,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[Any]: JSONB,
        list[float]: ARRAY(Double),
        list[int]: ARRAY(Integer),
        list[str]: ARRAY(Text),
    }


class Keyed:
    """The identity key that every table has."""

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)


class Stamped(Keyed):
    """A key and the moment of the row's creation."""

    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
