"""The page in a browser: question, progress, Pareto set, report, knob, comparison, fit, export, download."""

import re
import subprocess
import sys

import pytest
from browser import CHROMIUM, needs_chromium, serious_findings

from meshwright.plans.files.plan_file import parse_plan

pytestmark = needs_chromium
SIZES = [
    pytest.param(1280, "light"),
    *(
        pytest.param(width, scheme, marks=pytest.mark.slow)
        for width, scheme in ((1280, "dark"), (390, "light"), (390, "dark"), (1920, "light"))
    ),
]


@pytest.fixture(scope="module")
def address():
    command = [sys.executable, "-m", "meshwright", "web", "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        line = server.stdout.readline()
        yield re.search(r"http://\S+", line)[0]
        server.terminate()


@pytest.fixture
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_from_the_question_to_the_files(address, browser, width, scheme, tmp_path):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, messages, hosts = context.new_page(), [], set()
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.goto(f"{address}?model=llama-3.2-1b&device=h100-sxm-80gb&count=8&seq_len=2048&global_batch=32")
    page.wait_for_selector("html[data-answered=yes]")
    assert page.locator("#chart-pareto canvas").count() == 1
    page.select_option("[data-knob=micro_batch]", "2")
    page.wait_for_selector("#moved table")
    page.select_option("[data-knob='memory bandwidth']", "× 0.5")
    page.locator("input[name=compare]").nth(0).check()
    page.locator("input[name=compare]").nth(1).check()
    page.get_by_role("button", name="Compare two plans").click()
    page.wait_for_selector("#compared li")
    page.get_by_role("button", name="Export").click()
    page.wait_for_selector("#exported details")
    page.get_by_role("button", name="Check memory").click()
    page.wait_for_selector("#fit-answer canvas")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the plan").click()
    download.value.save_as(tmp_path / "plan.yaml")
    assert parse_plan((tmp_path / "plan.yaml").read_text(encoding="utf-8")).model == "llama-3.2-1b"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not serious_findings(page)
    with context.expect_page() as opened:
        page.locator("#results a", has_text="report").first.click()
    opened.value.wait_for_selector("html[data-drawn=yes]")
    assert "llama-3.2-1b" in opened.value.title()
    assert hosts == {address.split("/")[2]}
    assert not messages


@pytest.mark.slow
def test_a_point_of_the_pareto_set_opens_its_report_and_keys_reach_all(address, browser):
    page = browser.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready=yes]")
    page.fill("[name=model]", "llama-3.2-1b")
    page.fill("[name=count]", "8")
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-answered=yes]")
    page.locator("summary", has_text="Plans as a table").focus()
    page.keyboard.press("Enter")
    assert page.locator("section[aria-labelledby=pareto-title] table a").first.is_visible()
    box = page.evaluate(
        "(() => { const chart = echarts.getInstanceByDom(document.getElementById('chart-pareto'));"
        "return chart.convertToPixel({seriesIndex: 0}, chart.getOption().series[0].data[0]); })()"
    )
    place = page.locator("#chart-pareto")
    place.scroll_into_view_if_needed()
    with page.context.expect_page() as opened:
        place.click(position={"x": box[0], "y": box[1]})
    opened.value.wait_for_selector("html[data-drawn=yes]")


def test_wrong_questions_and_cancelled_searches_are_told(address, browser):
    page = browser.new_page()
    page.goto(f"{address}?model=no-such-model&count=8")
    page.wait_for_selector("#problems li")
    assert "model" in page.locator("#problems").inner_text()
    page.fill("[name=model]", "deepseek-v3")
    page.fill("[name=count]", "2048")
    page.get_by_role("button", name="Find plans").click()
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector("#problems p")
    assert "cancelled" in page.locator("#problems").inner_text()
