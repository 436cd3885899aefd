"""A headless Chromium, for pictures of the report and for tests of it; nothing else of longflow needs one."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from longflow.errors import UserError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""What a Chromium is called on this machine."""

ENVIRONMENT = "CHROMIUM"
"""The environment variable that may name another one."""


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium, as an object of the Python package playwright. Raises UserError where none can be had."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise UserError(
            "the Python package playwright is missing, which drives the browser: pip install playwright"
        ) from None
    path = os.environ.get(ENVIRONMENT) or next(filter(None, map(shutil.which, NAMES)), None)
    # Without a sandbox only for root, for whom Chromium has none.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=path, args=arguments)
        except Error as error:
            first = str(error).strip().splitlines()[0]
            raise UserError(
                f"no Chromium can be started ({first}); install Debian's package chromium, or name one in {ENVIRONMENT}"
            ) from error
        try:
            yield browser
        finally:
            browser.close()


def picture(report: str | Path, output: str | Path, width: int, height: int, *, dark: bool = False) -> None:
    """Take a picture (PNG) of the first screen of a report in a window of this size. Raises UserError."""
    if not Path(report).is_file():
        raise UserError(f"{report}: is not there; write it with python -m scripts.report")
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        scheme = "dark" if dark else "light"
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.goto(Path(report).resolve().as_uri())
        page.locator("html[data-ready]").wait_for()
        page.screenshot(path=str(output))
