"""Single files of GitHub repositories, at a commit and checked."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from longflow.errors import UserError

log = logging.getLogger("longflow")

ENVIRONMENT = "LONGFLOW_GITHUB"
"""Names the address that files are fetched from (a mirror) instead of GitHub's own."""

ADDRESS = "https://raw.githubusercontent.com"
LARGEST = 1 << 24
"""Bytes a file may have."""


def fetch(repository: str, commit: str, file: str, sha256: str, output: str | Path) -> None:
    """Fetch {address}/{repository}/{commit}/{file} and put it at `output` if its SHA-256 is the expected one.

    The output appears whole or not at all. Raises UserError naming the address, what went wrong and the way round.
    """
    base = os.environ.get(ENVIRONMENT) or ADDRESS
    address = f"{base.rstrip('/')}/{repository}/{commit}/{urllib.parse.quote(file)}"
    log.info("fetching %s", address)
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            content: bytes = answer.read(LARGEST)
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: no such kind of address
        unreached = isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError)
        reason = getattr(error, "reason", error) if unreached else error
        raise UserError(
            f"{file} of {repository} could not be fetched from {address} ({reason}); without network, name a clone of "
            f"{repository} in prompts_from:, or a mirror in the environment variable {ENVIRONMENT}"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise UserError(f"{address}: SHA-256 is {found[:12]}…, expected {sha256[:12]}…; that is another file")
    target = Path(output)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as folder:
        whole = Path(folder) / target.name
        whole.write_bytes(content)
        os.replace(whole, target)
