"""What of a configuration is not written down: keys, passwords, tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SECRET_NAME = re.compile(
    r"""
    (?: .*[-_ ] )? (?:
        (?: api|access|private|secret|subscription ) [-_ ]? key
        | (?: access|auth|api|hf|refresh|session|bearer|id ) [-_ ]? token
        | password | passwd | secret | authorization | auth | bearer | cookie | credentials?
    )
    | token
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Names of keys whose value is not written down, wherever they stand in a configuration (`extra_body`, `options`)."""

_SECRET_OPTION = re.compile(r"(--?(?:api[-_]?key|token|password|secret)[= ]\s*)(?!\$)\S+", re.IGNORECASE)
"""An option of a command that gives a secret itself and not the name of a variable that holds it."""

_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]+@", re.IGNORECASE)
"""Name and password in an address."""


def without_secrets(value: Any, name: str = "") -> Any:
    """A configuration with what looks like a secret left out: values of such keys, passwords in addresses."""
    if SECRET_NAME.fullmatch(name) and value is not None:
        return "(left out)"
    if isinstance(value, Mapping):
        return {key: without_secrets(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(inner) for inner in value]
    if isinstance(value, str):
        return _USER.sub(r"\1", _SECRET_OPTION.sub(r"\1(left out)", value))
    return value
