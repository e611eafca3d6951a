"""The status page in a real browser, before a real sidecar and a real broker: what an operator does with it."""

import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from connectors.embedded import EmbeddedKafka
from tests.support.browser import DESKTOP, PHONE, WRITE_IMAGES, Visit, visit
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import now_ms, timed

pytestmark = [pytest.mark.kafka, pytest.mark.long]

HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture
def orders(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> str:
    """A destination, and a running sidecar."""
    topic = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    return topic


@contextmanager
def opened(
    browser: Browser, sidecar: SidecarProcess, size: tuple[int, int] = DESKTOP, **options: Any
) -> Iterator[Visit]:
    """The page, live; at the end nothing has gone wrong on it, and it has asked nobody but the sidecar."""
    origin = f"http://{sidecar.http_address}/"
    with visit(browser, origin, size, **options) as seen:
        expect(seen.page.locator("#connection")).to_have_attribute("data-live", "yes", timeout=15_000)
        yield seen
        seen.assert_clean()
        seen.assert_requested_only(origin)


def figure(page: Page, name: str) -> int:
    """A number among those at the top."""
    text = page.locator(f"#{name}").inner_text()
    return int(re.sub(r"[^0-9]", "", text) or -1)


def test_scheduled_records_fall_due_before_the_operators_eyes(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, orders: str, browser: Browser
) -> None:
    due_ms = now_ms() + 7_000
    kafka.produce([timed(prefix, orders, f"m{number}", ("TIMER_DELIVER_MS", due_ms)) for number in range(40)])
    kafka.produce([timed(prefix, orders, f"far{number}", ("TIMER_DELAY_SEC", 7_200)) for number in range(5)])
    with opened(browser, sidecar) as seen:
        page = seen.page
        expect(page.locator("#state")).to_have_text("Healthy")
        expect(page.locator("#pending-total")).to_have_text("45")
        page.get_by_role("button", name="This minute").click()
        expect(
            page.locator("#wheel .cell", has_text="40")
            .or_(page.locator("#pending-total", has_text=re.compile("^5$")))
            .first
        ).to_be_visible(timeout=20_000)  # in the last seconds of a minute they belong to the next
        expect(page.locator("#pending-total")).to_have_text("5", timeout=20_000)
        expect(page.locator("#queues tbody tr", has_text="Wheel").locator("td").first).to_have_text("5")
        expect(page.locator("#late-p99")).not_to_have_text("–")
        expect(page.locator("#topics li")).to_contain_text([f"{orders}5"])
    assert len(kafka.read([orders], 40)) == 40


def test_a_message_is_cancelled_from_the_page(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, orders: str, browser: Browser
) -> None:
    kafka.produce([timed(prefix, orders, name, ("TIMER_DELAY_SEC", 3_600)) for name in ("doomed", "kept", HOSTILE)])
    wait_until(lambda: sidecar.pending() == 3, "they wait")
    with opened(browser, sidecar) as seen:
        page = seen.page
        page.get_by_label("Id", exact=True).fill("doomed")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.locator("#pending li")).to_have_count(1)
        # Asked first, and no is an answer.
        page.get_by_role("button", name="Cancel doomed").click()
        page.get_by_role("button", name="Leave it").click()
        expect(page.locator("#dialog")).to_be_hidden()
        page.get_by_role("button", name="Cancel doomed").click()
        page.get_by_role("button", name="Cancel the message").click()
        expect(page.locator("#pending li")).to_contain_text("Cancelled.", timeout=15_000)
        assert sidecar.pending() == 2
        page.get_by_label("Id", exact=True).fill("")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.locator("#pending-words")).to_have_text("2 pending")
        expect(page.locator("#pending li", has_text=HOSTILE)).to_be_visible()  # as a text


def test_more_of_a_list_is_more_of_what_was_asked_for_however_often_it_is_pressed(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, orders: str, browser: Browser
) -> None:
    kafka.produce([timed(prefix, orders, f"m{number}", ("TIMER_DELAY_SEC", 3_600)) for number in range(120)])
    wait_until(lambda: sidecar.pending() == 120, "they wait")
    with opened(browser, sidecar) as seen:
        page, rows, words = seen.page, seen.page.locator("#pending li"), seen.page.locator("#pending-words")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(words).to_have_text("120 pending, the first 50 shown")
        page.evaluate("for (const _ of [1, 2]) document.getElementById('pending-more').click()")
        expect(words).to_have_text("120 pending, the first 100 shown")
        expect(rows).to_have_count(100)
        page.get_by_label("Topic", exact=True).fill("typed, and not asked for")
        page.locator("#pending-more").click()
        expect(words).to_have_text("120 pending")
        assert len(set(page.locator("#pending .what").all_inner_texts())) == 120


def test_the_days_of_a_week_in_which_clocks_change_are_days(sidecar: SidecarProcess, browser: Browser) -> None:
    """In Berlin 25 October 2026 has 25 hours; the 107th after Thursday's first is Monday's from nine."""
    held: list[dict[str, list[str]]] = []

    def answer(route: Route) -> None:
        held.append(parse_qs(urlsplit(route.request.url).query))
        begin, end, bucket = (int(held[-1][name][0]) for name in ("from", "to", "bucket"))
        counts = [int(number == 106) for number in range((end - begin) // bucket)]
        route.fulfill(json={"counts": counts, "total": 1, "overdue": 0})

    sidecar.start()
    with opened(browser, sidecar, timezone_id="Europe/Berlin") as seen:
        page = seen.page
        page.route("**/api/v1/wheel?*", answer)
        page.clock.set_fixed_time("2026-10-22T08:00:00Z")
        page.get_by_role("button", name="7 days").click()
        cell = page.get_by_role("gridcell", name=re.compile("26 Oct.*09:00 to 10:00: 1 message"))
        expect(cell).to_have_text("1")
        expect(page.locator("#wheel .label.row")).to_have_text([re.compile(str(day)) for day in range(22, 29)])
        expect(page.locator("#wheel .cell.now")).to_have_attribute("aria-label", re.compile("22 Oct.*10:00 to 11:00"))
        assert (int(held[-1]["to"][0]) - int(held[-1]["from"][0])) // 3_600_000 == 7 * 24 + 1


def test_what_was_rejected_is_shown_with_its_reason_and_redriven(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, orders: str, browser: Browser
) -> None:
    body = b'{"order": 17, "note": "' + b"x" * 5_000 + b'"}'
    kafka.produce([timed(prefix, f"{prefix}nowhere", HOSTILE, ("TIMER_DELAY_MS", 0), value=body)])
    headers: list[tuple[str, bytes | None]] = [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", orders.encode())]
    dead = [
        (
            f"{prefix}SCHEDULE_TOPIC_XXXX-sendback",
            b"1",
            b"order 18",
            [*headers, ("DELAY", b"-1"), ("UNIQ_KEY", b"order-18")],
        )
    ]
    kafka.produce(dead)
    wait_until(lambda: {f"{prefix}DLQ-billing", f"{prefix}DLQ-{prefix}timewheel"} <= kafka.topics(), "both are buried")
    with opened(browser, sidecar) as seen:
        page = seen.page
        expect(page.locator("#rejected")).to_have_text("Rejected since the start: UNKNOWN_DESTINATION 1.")
        page.get_by_role("button", name="Read the dead letters").click()
        own = page.locator("#groups li", has_text=f"{prefix}timewheel")
        expect(own).to_contain_text("1 waiting: UNKNOWN_DESTINATION 1", timeout=20_000)
        own.get_by_role("button").click()
        letter = page.locator("#letters > li")
        expect(letter).to_contain_text(HOSTILE)
        expect(letter).to_contain_text("UNKNOWN_DESTINATION")
        expect(letter.locator("p.why").first).to_contain_text(f"'{prefix}nowhere'")
        expect(letter.locator("pre")).to_contain_text('{"order": 17')
        expect(letter).to_contain_text("the first 2.0 kB of 5.0 kB")
        # It cannot go where there is no topic, and the page says so before it is tried.
        letter.get_by_role("button", name=re.compile("^Redrive")).click()
        expect(page.locator("#dialog")).to_contain_text("1 cannot be redriven", timeout=20_000)
        page.get_by_role("button", name="Leave it").click()
        # A consumer's goes back to where it came from.
        page.get_by_role("button", name="Show the dead letters of billing").click()
        expect(letter).to_contain_text("order 18", timeout=20_000)
        letter.get_by_role("button", name="Redrive order-18").click()
        expect(page.locator("#dialog")).to_contain_text(f"1 would be redriven to {orders}", timeout=20_000)
        page.locator("#dialog").get_by_role("button", name="Redrive", exact=True).click()
        expect(page.locator("#dead-words")).to_have_text(f"1 redriven to {orders}", timeout=20_000)
        expect(page.locator("#groups li", has_text="billing")).to_contain_text("0 waiting, 1 redriven")
    (record,) = kafka.read([orders], 1)
    assert (record.value, record.text("REDRIVE_COUNT")) == (b"order 18", "1")


@pytest.mark.parametrize("hours", [2, 72], ids=["due soon", "rolls before it is due"])
def test_the_keyboard_is_enough(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, orders: str, browser: Browser, hours: int
) -> None:
    due_ms = now_ms() + hours * 3_600_000
    kafka.produce([timed(prefix, orders, "by-keyboard", ("TIMER_DELIVER_MS", due_ms))])
    wait_until(lambda: sidecar.pending() == 1, "it waits")
    with opened(browser, sidecar) as seen:
        page, press = seen.page, seen.page.keyboard.press

        def focused() -> str:
            return str(
                page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")
            )

        def tab_to(label: str) -> None:
            for _ in range(40):
                press("Tab")
                if re.search(label, focused()):
                    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                    assert outline != "none", f"no visible focus on {label}"
                    return
            raise AssertionError(f"no way to {label} by Tab; last: {focused()}")

        expect(page.locator("#wheel .cell", has_text="1")).to_have_count(1)
        # 1. From the week to the second: always to the only cell that holds something.
        tab_to(r"message")
        for _ in ("week", "day", "hour", "minute"):
            page.wait_for_function(_ONE_IS_SHOWN)
            down, right = page.evaluate(_WAY_TO_THE_ONE)
            for key, steps in (("ArrowDown", down), ("ArrowUp", -down), ("ArrowRight", right), ("ArrowLeft", -right)):
                for _ in range(steps):
                    press(key)
            assert focused().endswith(": 1 message"), focused()
            press("Enter")
        # 2. What it holds, listed and cancelled.
        assert focused() == "List this message"
        press("Enter")
        expect(page.locator("#pending li")).to_contain_text("by-keyboard")
        tab_to("Cancel by-keyboard")
        press("Enter")
        assert focused() == "Leave it", "the dialog begins with the answer that does no harm"
        press("Tab")
        press("Enter")
        expect(page.locator("#pending li")).to_contain_text("Cancelled.", timeout=15_000)
        # 3. And back.
        page.locator("#wheel .cell[tabindex='0']").focus()
        for _ in ("hour", "day", "week"):
            press("Escape")
        expect(page.locator("#zoom [aria-current]")).to_have_text("7 days")
    assert sidecar.pending() == 0


_CELLS = "[...document.querySelectorAll('#wheel .cell')]"
_HAS_COUNTS = f"() => {_CELLS}.every((cell) => !cell.getAttribute('aria-label').includes('not known'))"
_ONE_IS_SHOWN = f"() => {_CELLS}.filter((cell) => cell.textContent === '1').length === 1"
_WAY_TO_THE_ONE = """() => {
  const rows = [...document.querySelectorAll('#wheel [role=row]')].map((row) => [...row.querySelectorAll('.cell')]);
  const place = (wanted) => {
    const row = rows.findIndex((cells) => cells.some(wanted));
    return [row, rows[row].findIndex(wanted)];
  };
  const from = place((cell) => cell === document.activeElement);
  const to = place((cell) => cell.textContent === '1');
  return [to[0] - from[0], to[1] - from[1]];
}"""
"""Rows and columns from the cell that has the focus."""


LONG_NAME = "reminders." + "a-topic-with-a-very-long-name-" * 6


def test_it_fits_a_phone_and_the_dark(sidecar: SidecarProcess, browser: Browser) -> None:
    with (
        EmbeddedKafka() as broker
    ):  # of its own, for names as they are in the field: these are the pictures of the docs
        kafka = Kafka(broker.bootstrap_servers)
        sidecar.settings |= {"bootstrap_servers": broker.bootstrap_servers, "topic_prefix": "", "group_id": "timewheel"}
        sidecar.settings |= {"levels": "1s 5s 10s 30s 1m 2m 3m 5m 10m 30m 1h 2h", "partitions": 2}
        topics = {
            kafka.create_topic("orders"): 6_000,
            kafka.create_topic("payments"): 2_500,
            kafka.create_topic(LONG_NAME): 700,
        }
        sidecar.start()
        chance, begin_ms = random.Random(1), now_ms()
        kafka.produce(
            timed(
                "",
                topic,
                f"{topic}-{number}",
                ("TIMER_DELIVER_MS", begin_ms + 60_000 + int(chance.gammavariate(2, 8) * 3_600_000)),
            )
            for topic, count in topics.items()
            for number in range(count)
        )
        wait_until(lambda: sidecar.pending() == 9_200, "they wait")
        for second in range(25 if os.environ.get(WRITE_IMAGES) else 2):
            soon = [("REAL_TOPIC", b"orders")]
            kafka.produce(
                (f"SCHEDULE_TOPIC_XXXX-{1 + number % 5}", b"k", b"v", soon) for number in range(60 + 7 * second)
            )
            wait_until(lambda until=begin_ms + 1_000 * second: now_ms() > until, "a second has passed")
        for name, size, dark in (("page", DESKTOP, False), ("page-dark", DESKTOP, True), ("page-phone", PHONE, False)):
            with opened(browser, sidecar, size, dark=dark, has_touch=size is PHONE) as seen:
                page = seen.page
                expect(page.locator("#pending-total")).to_have_text("9,200")
                page.wait_for_function(_HAS_COUNTS)
                seen.shoot(name)
                page.get_by_role("button", name="Show", exact=True).click()
                expect(page.locator("#pending li").first).to_be_visible()
                page.get_by_role("button", name=re.compile("idle")).click()
                seen.assert_fits()
                background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 3 * 64) == dark, background
                page.get_by_role("button", name="This minute").click()
                page.wait_for_function(_HAS_COUNTS)
                seen.assert_fits()
                smallest = page.evaluate(f"Math.min(...{_CELLS}.map((cell) => cell.getBoundingClientRect().height))")
                assert smallest >= 24, f"cells of {smallest} px are too small for a finger"


def test_switches_stop_delivery_and_the_page_says_so(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, orders: str, browser: Browser
) -> None:
    with opened(browser, sidecar) as seen:
        page = seen.page
        page.get_by_role("button", name="Stop delivery").click()
        page.locator("#dialog").get_by_role("button", name="Stop delivery").click()
        expect(page.locator("#state")).to_have_text("Held by a switch")
        kafka.produce([timed(prefix, orders, "held", ("TIMER_DELAY_MS", 0))])
        expect(page.locator("#words")).to_contain_text("what is due has waited for", timeout=15_000)
        page.get_by_role("button", name="Start delivery").click()
        expect(page.locator("#state")).to_have_text("Healthy", timeout=15_000)
    assert len(kafka.read([orders], 1)) == 1


def test_the_page_wants_the_token_and_keeps_it_for_the_tab_alone(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, browser: Browser
) -> None:
    sidecar.settings["http_token"] = "s3cret"
    sidecar.start()
    origin = f"http://{sidecar.http_address}/"
    with visit(browser, origin) as seen:
        page = seen.page
        expect(page.locator("#token-value")).to_be_focused(timeout=15_000)
        expect(page.locator("#connection")).to_have_text("a token is required")
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#connection")).to_have_text("this token is wrong")
        expect(page.locator("#words")).to_have_text("The token given is not the value of its setting http_token.")
        assert page.evaluate("sessionStorage.length") == 0, "it is not asked with again"
        page.keyboard.type("s3cret")
        page.keyboard.press("Enter")
        expect(page.locator("#state")).to_have_text("Healthy", timeout=15_000)
        expect(page.locator("#token")).to_be_hidden()
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        refused = [complaint for complaint in seen.complaints if "401" not in complaint]
        assert not refused, refused
        assert "s3cret" not in "".join(seen.requests)


def test_the_page_says_when_the_sidecar_is_gone_and_goes_on_when_it_is_back(
    sidecar: SidecarProcess, orders: str, browser: Browser
) -> None:
    host, _, port = str(sidecar.http_address).rpartition(":")
    with visit(browser, f"http://{host}:{port}/") as seen:
        page = seen.page
        expect(page.locator("#state")).to_have_text("Healthy", timeout=15_000)
        sidecar.kill()
        expect(page.locator("#state")).to_have_text("No answer from the sidecar", timeout=15_000)
        expect(page.locator("#words")).to_contain_text("What is below was so at")
        sidecar.settings["http_address"] = f"{host}:{port}"
        sidecar.start()
        expect(page.locator("#state")).to_have_text("Healthy", timeout=30_000)
