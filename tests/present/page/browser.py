"""A headless Chromium for tests of pages, and what went wrong on a page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
DRAWN = "document.documentElement.dataset.drawn === 'yes'"


@dataclass
class Opened:
    """A page with the messages of its console, its errors and its requests."""

    page: object
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def opened(file: Path, width: int = 1280, scheme: str = "light") -> Iterator[Opened]:
    """Open a file of disk and wait until its charts are drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        found = Opened(page)
        page.on("console", lambda message: found.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: found.messages.append(str(error)))
        page.on("request", lambda request: found.requests.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_function(DRAWN)
        yield found
        browser.close()


def serious_findings(page) -> list[str]:
    """Return the serious and critical findings of axe-core."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:120]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
