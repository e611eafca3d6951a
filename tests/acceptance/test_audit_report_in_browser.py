"""The audit's page in a real browser: phone and desktop, light and dark, printed, without scripts."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from spark.report import write_report
from spark.report.model import Faulty, Verdict
from tests.support.audit import day_with_faults, day_without_faults
from tests.support.browser import DESKTOP, PHONE, visit

pytestmark = pytest.mark.slow

A4_PX = (703, 1000)
"""A4 less its margins of 12 mm, at 96 dpi."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("audit")
    write_report(day_with_faults(), directory)
    return (directory / "report.html").as_uri()


def _rows(page: Page) -> list[list[str]]:
    """The cells of the faulty messages that are seen, as they stand."""
    rows: list[list[str]] = page.eval_on_selector_all(
        "#faulty-table tbody tr:not([hidden])", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return rows


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_asks_nobody_and_complains_of_nothing(
    browser: Browser, url: str, size: tuple[int, int], *, dark: bool
) -> None:
    with visit(browser, url, size, dark=dark) as seen:
        assert "22 of 1,248,085 messages broke the promise" in seen.page.inner_text("h1")
        seen.assert_fits()
        if size == DESKTOP:  # the elements are the same on a phone
            seen.assert_accessible()
        seen.assert_requested_only(url)
        seen.assert_clean()
        name = "audit-report" + ("-phone" if size == PHONE else "") + ("-dark" if dark else "")
        if name in ("audit-report", "audit-report-phone"):
            seen.shoot(name)
        if name == "audit-report-dark":
            seen.page.locator("#load").evaluate("heading => heading.scrollIntoView()")
            seen.shoot(name)


def test_the_faulty_are_filtered_by_text_and_verdict(browser: Browser, url: str) -> None:
    with visit(browser, url) as seen:
        assert len(_rows(seen.page)) == 64
        seen.page.get_by_role("combobox", name="Verdict").select_option("missing")
        assert {row[0] for row in _rows(seen.page)} == {"missing"}
        assert seen.page.inner_text(".tools output") == "9 of 64 shown"
        one = _rows(seen.page)[3][1]
        seen.page.get_by_label("Find").fill(f" {one.upper()} ")
        assert [row[1] for row in _rows(seen.page)] == [one]
        seen.page.get_by_label("Find").fill("no such message")
        assert _rows(seen.page) == []
        assert seen.page.inner_text(".tools output") == "0 of 64 shown"
        seen.assert_clean()


def test_the_faulty_are_sorted_by_any_column_numbers_as_numbers(browser: Browser, url: str) -> None:
    with visit(browser, url) as seen:
        seen.page.get_by_role("button", name="lateness").press("Enter")  # by keyboard as well
        known = [message.lateness_ms for message in day_with_faults().faulty if message.lateness_ms is not None]
        shown = seen.page.eval_on_selector_all(
            "#faulty-table tbody td.number[data-sort]", "cells => cells.map(cell => cell.dataset.sort)"
        )
        assert shown == [*map(str, sorted(known)), *[""] * (64 - len(known))], "what never came is at the end"
        seen.page.get_by_role("button", name="offset").click()
        offsets = [int(row[4]) for row in _rows(seen.page)]
        assert offsets == sorted(offsets)
        seen.page.get_by_role("button", name="offset").click()
        assert [int(row[4]) for row in _rows(seen.page)] == offsets[::-1]
        assert seen.page.locator("[aria-sort]").count() == 1
        for _ in range(2):
            seen.page.get_by_role("button", name="delivered").click()
            assert [row[6] for row in _rows(seen.page)][-1] == "–", "what has no value comes last, either way"


def test_a_long_id_is_found_by_its_end(browser: Browser, tmp_path: Path) -> None:
    ids = [f"{'a' * 90}-{number}" for number in range(3)]
    faulty = tuple(Faulty(id=id_, verdict=Verdict.MISSING, topic="t", partition=0, offset=1) for id_ in ids)
    write_report(day_without_faults().model_copy(update={"faulty": faulty}), tmp_path)
    with visit(browser, (tmp_path / "report.html").as_uri()) as seen:
        seen.page.get_by_label("Find").fill(ids[1])
        assert seen.page.inner_text(".tools output") == "1 of 3 shown"


def test_without_scripts_it_is_whole(browser: Browser, url: str) -> None:
    with visit(browser, url, PHONE, scripts=False) as seen:
        assert seen.page.locator("#faulty-table tbody tr").count() == 64
        assert not seen.page.locator("form.tools").is_visible()


def test_on_paper_it_is_light_whole_and_no_wider_than_a4(browser: Browser, url: str) -> None:
    with visit(browser, url, A4_PX, dark=True) as seen:
        seen.page.emulate_media(media="print")
        seen.assert_fits()
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not seen.page.locator("form.tools").is_visible()
        cut = seen.page.eval_on_selector_all(
            ".wide", "boxes => boxes.filter(box => box.scrollHeight > box.clientHeight + 1).length"
        )
        assert cut == 0, "a table is cut off on paper"
        assert len(seen.page.pdf(format="A4")) > 50_000


def test_a_day_without_faults_says_so(browser: Browser, tmp_path: Path) -> None:
    write_report(day_without_faults(), tmp_path)
    with visit(browser, (tmp_path / "report.html").as_uri(), PHONE) as seen:
        assert seen.page.inner_text("h1") == "Every one of 1,204,233 messages arrived once and on time."
        seen.assert_fits()
        seen.assert_accessible()
        seen.assert_clean()


def test_ids_that_attack_the_page_or_are_endless_are_just_text(browser: Browser, tmp_path: Path) -> None:
    attacks = [
        "<script>document.title='taken'</script>",
        "<img src=x onerror=\"document.title='taken'\">",
        "</td></table></script><svg onload=document.title='taken'>",
        "javascript:document.title='taken'",
        "x" * 1_000_000,
    ]
    faulty = tuple(
        Faulty(id=text, verdict=Verdict.MISSING, topic=text, partition=0, offset=1, destination=text, why=text)
        for text in attacks
    )
    write_report(day_without_faults().model_copy(update={"faulty": faulty, "notes": tuple(attacks)}), tmp_path)
    with visit(browser, (tmp_path / "report.html").as_uri(), PHONE) as seen:
        assert seen.page.title().startswith("Timewheel audit:")
        assert [row[1] for row in _rows(seen.page)][:2] == attacks[:2]
        seen.assert_fits()
        seen.assert_requested_only((tmp_path / "report.html").as_uri())
        seen.assert_clean()
