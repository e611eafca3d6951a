"""A real browser for the pages we make, and what it complains about.

Chromium from the system (``chromium``, ``google-chrome``, or the path in TIMEWHEEL_TEST_BROWSER), driven by Playwright.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, sync_playwright

PHONE = (390, 844)
DESKTOP = (1280, 900)

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WRITE_IMAGES = "TIMEWHEEL_WRITE_IMAGES"

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser_path() -> str | None:
    """The browser's program; None where there is none."""
    named = os.environ.get("TIMEWHEEL_TEST_BROWSER")
    return next(filter(None, map(shutil.which, [named] if named else _PROGRAMS)), None)


@contextmanager
def running_browser(program: str) -> Iterator[Browser]:
    """A headless browser. Coroutines cannot be run in this thread meanwhile (Playwright's loop is)."""
    with sync_playwright() as playwright:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # root has no sandbox to give
        browser = playwright.chromium.launch(executable_path=program, args=sandbox)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page, and what went wrong on it: console errors and warnings, exceptions, answers of 400 and above."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        self.page.on("response", self._on_response)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).scheme not in ("data", "blob"):
            self.requests.append(request.url)

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.status}: {response.url}")

    def assert_clean(self) -> None:
        assert not self.complaints, self.complaints

    def assert_requested_only(self, origin: str) -> None:
        """Every request begins with ``origin`` (the file itself, or the server's address)."""
        strangers = [url for url in self.requests if not url.startswith(origin)]
        assert not strangers, f"the page asked elsewhere: {strangers}"

    def assert_fits(self) -> None:
        """Nothing is wider than the window: no horizontal scrolling of the page as a whole."""
        wide: list[str] = self.page.evaluate(_WIDER_THAN_THE_WINDOW)
        assert not wide, f"wider than the window: {wide[:5]}"

    def assert_accessible(self) -> None:
        """axe-core finds nothing: contrast, names, headings, tables, keyboard."""
        found = Axe().run(self.page)
        assert not found.violations_count, found.generate_report()

    def shoot(self, name: str, *, full_page: bool = False) -> None:
        """Keep the picture as docs/images/NAME.png.

        Written where TIMEWHEEL_WRITE_IMAGES is set; otherwise the picture has to be there already, for the docs.
        """
        target = IMAGES / f"{name}.png"
        if os.environ.get(WRITE_IMAGES):
            target.parent.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=target, full_page=full_page, animations="disabled")
        assert target.is_file(), f"{target} is missing; run this test with {WRITE_IMAGES}=1"


@contextmanager
def visit(
    browser: Browser,
    url: str,
    size: tuple[int, int] = DESKTOP,
    *,
    dark: bool = False,
    scripts: bool = True,
    **context_options: Any,
) -> Iterator[Visit]:
    """``url`` opened in a window of its own, without anything remembered; options are Playwright's (``has_touch``)."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        java_script_enabled=scripts,
        locale="en-GB",
        **{"timezone_id": "UTC", **context_options},
    )
    try:
        seen = Visit(context.new_page())
        seen.page.goto(url)
        yield seen
    finally:
        context.close()


_WIDER_THAN_THE_WINDOW = """
() => {
  const width = document.documentElement.clientWidth;
  const clipped = (element) => {
    for (let up = element.parentElement; up; up = up.parentElement) {
      if (up !== document.body && getComputedStyle(up).overflowX !== "visible") return true;
    }
    return false;
  };
  const wide = [...document.body.querySelectorAll("*")]
    .filter((element) => element.getBoundingClientRect().right > width + 1 && !clipped(element))
    .map((element) => element.tagName + "." + (element.getAttribute("class") || "") + "#" + element.id);
  if (document.documentElement.scrollWidth > width) wide.push("the page: " + document.documentElement.scrollWidth);
  return wide;
}
"""
