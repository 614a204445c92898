"""The page of a report in a browser: charts are drawn, knobs work, figures read as the terminal's."""

import pytest
from browser import needs_chromium, opened, serious_findings
from report_pages import document

from meshwright.present.page.report_page import report_page
from meshwright.units import format_bytes, format_seconds

pytestmark = needs_chromium
SIZES = [
    pytest.param(1280, "light"),
    *(
        pytest.param(width, scheme, marks=pytest.mark.slow)
        for width, scheme in ((390, "light"), (390, "dark"), (1280, "dark"), (1920, "light"))
    ),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(document()), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_reader_finds_all_charts_and_uses_them(file, width, scheme):
    with opened(file, width, scheme) as found:
        page = found.page
        charts = page.locator(".chart")
        assert charts.count() == 7
        assert page.locator(".chart canvas").count() == 7
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        before = pixels(page, "chart-layout")
        page.locator("input[name=layout-axis]").last.check()
        assert pixels(page, "chart-layout") != before
        before = pixels(page, "chart-memory")
        page.locator("#memory-rank").select_option("1")
        assert pixels(page, "chart-memory") != before
        page.locator("summary").first.click()
        assert page.locator("details[open] table").first.is_visible()
        assert not serious_findings(page)
        assert found.requests == [file.as_uri()]
        assert not found.messages


@pytest.mark.slow
def test_hovering_the_timeline_names_the_action_below(file):
    with opened(file) as found:
        page = found.page
        page.locator("#chart-timeline").scroll_into_view_if_needed()
        box = page.locator("#chart-timeline").bounding_box()
        before = pixels(page, "chart-timeline")
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
        page.wait_for_timeout(300)
        assert pixels(page, "chart-timeline") != before
        assert not found.messages


@pytest.mark.slow
def test_units_read_as_in_the_terminal(file):
    values = [0.0, 1e-9, 2.5e-6, 9.996e-4, 0.0123, 0.9996, 1.0, 65.9684, 99.9996, 100.04, 12345.6]
    sizes = [0, 1, 1023, 1024, 2**20 - 1, 66396677734, 2**40, 3 * 2**45]
    source = file.parent / "units.html"
    script = report_page(document()).replace(
        "drawLayout();\n", "window.units = [seconds, bytes];\ndrawLayout();\n"
    )
    source.write_text(script.replace("Content-Security-Policy", "x-policy"), encoding="utf-8")
    with opened(source) as found:
        shown = found.page.evaluate("values => values.map(window.units[0])", values)
        assert shown == [format_seconds(value) for value in values]
        assert found.page.evaluate("sizes => sizes.map(window.units[1])", sizes) == [
            format_bytes(size) for size in sizes
        ]


def pixels(page, name):
    """Return the picture of a chart."""
    return page.locator(f"#{name} canvas").first.evaluate("canvas => canvas.toDataURL()")
