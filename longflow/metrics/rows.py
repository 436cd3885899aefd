"""What a row of a predictions file must hold, checked where it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


class RowError(Exception):
    """A row lacks what its metric needs; the text says which key, what was expected and what was found."""


_JSON_NAMES = {
    type(None): "null",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def wrong(key: str, expected: str, found: Any, inside: str = "") -> RowError:
    """The error of a value of another kind than was expected."""
    kind = _JSON_NAMES.get(type(found), type(found).__name__)
    return RowError(f"{key!r} must be {expected}, found {inside}{kind}")


def text_or_null(row: Row, key: str) -> str | None:
    """A string of a row, or None where it is null or absent. Raises RowError."""
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise wrong(key, "a string or null", value)
    return value


def texts(row: Row, key: str) -> list[str]:
    """A list of strings of a row. Raises RowError, also where it is absent."""
    if key not in row:
        raise RowError(f"{key!r} is missing; a list of strings was expected")
    values = row[key]
    if not isinstance(values, list):
        raise wrong(key, "a list of strings", values)
    for value in values:
        if not isinstance(value, str):
            raise wrong(key, "a list of strings", value, "a list that holds ")
    return values
