"""Reports in a browser: tables that sort and pictures that zoom, with no network and readable without scripts."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import threading
from typing import ClassVar

import pytest

from builders.sweep_by_hand import gemv
from ndpsim.config import load_hardware
from ndpsim.report.html.page import Cell, HtmlTable, Section, write_page
from ndpsim.report.html.runs import write_moe_report
from ndpsim.report.html.sweeps import write_sweep_report
from ndpsim.report.moe import MoeHistory

_PROGRAMS = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
_MISSING = [name for name, path in _PROGRAMS.items() if path is None]

# In CI the tests run, and fail where there is no browser.
pytestmark = pytest.mark.skipif(
    bool(_MISSING) and not os.environ.get("NDPSIM_TESTS_IN_CI"),
    reason=f"not installed: {', '.join(_MISSING)}",
)


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    assert not _MISSING, f"not installed: {', '.join(_MISSING)}"
    options = webdriver.ChromeOptions()
    options.binary_location = _PROGRAMS["chromium"]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1200,1000")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(_PROGRAMS["chromedriver"]))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "sweep.html"
    result = gemv(title="Ranks, tokens and bits")
    write_sweep_report(str(path), result.definition, result)
    return path


def open_page(browser, path):
    """Shows a file, and waits until all of it is there: a slow machine's browser answers before that."""
    from selenium.webdriver.support.wait import WebDriverWait

    shown = "return document.readyState === 'complete' && location.href === arguments[0]"
    browser.get(path.as_uri())
    WebDriverWait(browser, 60).until(lambda _: browser.execute_script(shown, path.as_uri()))


@pytest.fixture
def page(browser, report):
    """The browser with the report, and what it logged of others forgotten."""
    for log in ("performance", "browser"):
        browser.get_log(log)
    open_page(browser, report)
    return browser


def by_css(where, selector):
    return where.find_elements("css selector", selector)


def column(page, name):
    """The texts of a column of the first table that sorts, from top to bottom."""
    return page.execute_script(
        "const table = document.querySelector('table.sortable');"
        "const place = [...table.tHead.rows[0].cells].findIndex((head) => head.textContent === arguments[0]);"
        "return [...table.tBodies[0].rows].map((row) => row.cells[place].textContent);",
        name,
    )


def click_head(page, name):
    (button,) = [b for b in by_css(page, "table.sortable thead th button")[:12] if b.text == name]
    page.execute_script("arguments[0].scrollIntoView({ block: 'center' })", button)
    button.click()
    return button.find_element("xpath", "..").get_attribute("aria-sort")


def view_box(page):
    script = "return document.querySelector('figure.picture svg').getAttribute('viewBox')"
    return [float(part) for part in page.execute_script(script).split()]


def messages(browser):
    return [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]


def requested(browser):
    """The addresses that pages asked for."""
    asked = (one for one in messages(browser) if one["method"] == "Network.requestWillBeSent")
    return [one["params"]["request"]["url"] for one in asked]


def test_a_click_on_a_head_sorts_by_value_and_another_turns_the_order(page):
    name = "time (ms)"
    before = column(page, name)
    assert click_head(page, name) == "ascending"
    assert [float(text) for text in column(page, name)] == sorted(map(float, before))
    assert click_head(page, name) == "descending"
    assert [float(text) for text in column(page, name)] == sorted(map(float, before), reverse=True)
    assert click_head(page, "tokens") == "ascending"
    assert list(dict.fromkeys(column(page, "tokens"))) == ["1", "4", "16", "64"]  # as texts: 1, 16, 4, 64
    assert len(by_css(page, "table.sortable")[0].find_elements("css selector", "th[aria-sort]")) == 1


def test_numbers_are_sorted_by_value_and_what_is_empty_comes_last(browser, tmp_path):
    values = [10.25, None, -3.0, 10.5, 1e-7, 1e21, 9.0]
    cells = [(Cell("" if value is None else f"{value:.3g} units", value),) for value in values]
    write_page(str(tmp_path / "a.html"), "Numbers", "", [Section("Table", HtmlTable(("number",), cells))])
    open_page(browser, tmp_path / "a.html")
    rising = ["-3 units", "1e-07 units", "9 units", "10.2 units", "10.5 units", "1e+21 units"]
    click_head(browser, "number")
    assert column(browser, "number") == [*rising, ""]
    click_head(browser, "number")
    assert column(browser, "number") == [*reversed(rising), ""]


def test_rows_stay_whole_when_they_are_sorted(page):
    click_head(page, "time (ms)")
    rows = zip(*(column(page, name) for name in ("dimm.ranks", "tokens", "bits", "time (ms)")), strict=True)
    for ranks, tokens, bits, time in rows:
        assert float(time) == pytest.approx(1e-3 * int(tokens) * int(bits) / int(ranks), rel=1e-3)


def test_buttons_zoom_a_picture_and_show_all_of_it_again(page):
    whole = view_box(page)
    closer, further, everything = by_css(page, "figure.picture .zoom button")[:3]
    closer.click()
    half = view_box(page)
    assert half[2:] == pytest.approx([whole[2] / 2, whole[3] / 2])
    assert half[:2] == pytest.approx([whole[2] / 4, whole[3] / 4])
    closer.click()
    further.click()
    assert view_box(page) == pytest.approx(half)
    for _ in range(3):
        further.click()
    assert view_box(page) == pytest.approx(whole)
    closer.click()
    everything.click()
    assert view_box(page) == pytest.approx(whole)


def test_the_wheel_zooms_where_it_points_and_dragging_moves(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    svg, whole = by_css(page, "figure.picture svg")[0], view_box(page)
    by_css(page, "figure.picture .zoom button")[0].click()
    half = view_box(page)
    origin = ScrollOrigin.from_element(svg, -int(0.25 * svg.size["width"]), 0)
    ActionChains(page).scroll_from_origin(origin, 0, -100).perform()
    closer = view_box(page)
    assert closer[2] == pytest.approx(0.8 * half[2], rel=1e-3)
    assert closer[0] - half[0] == pytest.approx(0.25 * (half[2] - closer[2]), rel=0.05)
    ActionChains(page).move_to_element(svg).click_and_hold().move_by_offset(-60, 0).release().perform()
    assert view_box(page)[0] > closer[0]
    assert view_box(page)[2] == closer[2]
    assert whole[2] > view_box(page)[2]


def test_without_ctrl_the_wheel_scrolls_past_a_picture_that_is_whole(page):
    whole = view_box(page)
    turned = (
        "const event = new WheelEvent('wheel', { deltaY: -100, ctrlKey: arguments[0], cancelable: true });"
        "document.querySelector('figure.picture svg').dispatchEvent(event);"
        "return event.defaultPrevented;"
    )
    assert page.execute_script(turned, False) is False
    assert view_box(page) == whole
    assert page.execute_script(turned, True) is True
    assert view_box(page)[2] < whole[2]


def test_a_page_asks_for_nothing_but_itself_and_complains_of_nothing(page, report):
    assert set(requested(page)) - {"data:,"} == {report.as_uri()}
    assert page.get_log("browser") == []
    assert page.title == "Ranks, tokens and bits"
    drawn = by_css(page, "figure.picture svg")[0].size
    assert drawn["width"] > 800
    assert drawn["height"] > 200


class _Counting(http.server.SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self):
        self.asked.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.mark.parametrize("with_policy", [True, False])
def test_the_policy_of_a_page_stops_what_would_use_the_network_or_run(browser, report, tmp_path, with_policy):
    """Without the policy the same page reaches the server, so that the server would notice."""
    asked: list[str] = []
    handler = type("Handler", (_Counting,), {"asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        there = f"http://127.0.0.1:{server.server_port}"
        hostile = (
            f"<img src='{there}/img'><script>window.ran = true; fetch('{there}/fetch')</script>"
            f"<link rel=stylesheet href='{there}/style'><iframe src='{there}/frame'></iframe></body>"
        )
        text = report.read_text().replace("</body>", hostile)
        if not with_policy:
            text = re.sub("<meta http-equiv[^>]*>", "", text)
        path = tmp_path / "hostile.html"
        path.write_text(text)
        open_page(browser, path)
        assert browser.execute_script("return window.ran === true") is not with_policy
        server.shutdown()
        thread.join()
    assert (asked == []) is with_policy
    assert "/img" in asked or with_policy


def test_without_scripts_everything_can_be_read(browser, report):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(browser, report)
        text = browser.find_element("tag name", "body").text
        assert by_css(browser, "button") == []
        assert by_css(browser, "figure.picture svg")[0].is_displayed()
        for words in ("Ranks, tokens and bits", "best time", "energy (mJ)", "Provenance", "All metrics"):
            assert words in text
        details = browser.find_element("tag name", "details")
        details.find_element("tag name", "summary").click()
        assert details.get_attribute("open") is not None
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_colours_follow_the_scheme_of_the_reader(page, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    shown = page.execute_script(
        "const style = getComputedStyle(document.body);"
        "return [style.backgroundColor, style.color].map((c) => Number(c.match(/\\d+/)[0]));"
    )
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    background, ink = shown
    assert (background < ink) is (scheme == "dark")
    assert abs(background - ink) > 128


def test_what_is_folded_is_printed_and_buttons_are_not(page):
    seen = "return [...document.querySelectorAll(arguments[0])].map((part) => part.checkVisibility())"
    assert set(page.execute_script(seen, "details table")) == {False}
    assert set(page.execute_script(seen, ".zoom")) == {True}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert set(page.execute_script(seen, "details table")) == {True}
    assert set(page.execute_script(seen, ".zoom")) == {False}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_summary_of_a_run_is_whole_and_its_values_are_on_one_line(browser, tmp_path):
    details = ", ".join(f"component {number} 144.8 mW" for number in range(12))
    facts = [(f"result {row}", value, details) for row in range(10) for value in ("1024.0 GFLOPS", "624,416")]
    write_page(str(tmp_path / "a.html"), "Run", "", [Section("Summary", HtmlTable((), facts))])
    size = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        open_page(browser, tmp_path / "a.html")
        hidden, heights = browser.execute_script(
            "const place = document.querySelector('section:first-of-type .scroll'), range = document.createRange();"
            "const values = place.querySelectorAll('td:nth-child(2):nth-last-child(2)');"
            "return [place.scrollHeight - place.clientHeight, [...values].map((value) => {"
            "  range.selectNodeContents(value); return range.getBoundingClientRect().height; })];"
        )
        assert hidden <= 1
        assert len(heights) == len(facts)
        assert max(heights) < 30, heights  # pixels: one line
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("wide", [1280, 400])
def test_the_summary_of_many_policies_is_not_cut(browser, moe_by_hand, tmp_path, wide):
    """No table of the summary is larger than its place; on a narrow screen each cell has its head beside it."""
    names = [f"policy-{number}" for number in range(14)]
    history = MoeHistory()
    moe_by_hand.play(history, *names)
    write_moe_report(str(tmp_path / "moe.html"), moe_by_hand.result(*names), history, load_hardware("trimoe"))
    size = {"width": wide, "height": 900, "deviceScaleFactor": 1, "mobile": wide < 1000}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        open_page(browser, tmp_path / "moe.html")
        cut = browser.execute_script(
            "const places = document.querySelectorAll('section:first-of-type .scroll');"
            "return [...places].flatMap((place) =>"
            " [[place.scrollWidth, place.clientWidth], [place.scrollHeight, place.clientHeight]]);"
        )
        assert len(cut) == 2 * 4  # the policies as rows, and as columns in groups of five
        assert all(content <= room + 1 for content, room in cut), cut
        page_wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert page_wide <= wide
        head = browser.execute_script(
            "return getComputedStyle(document.querySelector('.sortable td + td'), '::before').content"
        )
        assert ("throughput" in head) == (wide == 400)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
