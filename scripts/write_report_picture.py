"""Write docs/report.png: parts of the report of the README's plan, as a browser shows them. Needs Chromium.

python scripts/write_report_picture.py
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests" / "present" / "page")]
from browser import opened  # noqa: E402

import meshwright as mw  # noqa: E402

SHOWN = ("layout", "step", "memory")
LEFT_OUT = "header nav, header .remark, section p, section ul.plain, section details, section > svg, footer"
WIDTH = 1000


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        answer = mw.plan("llama-3.1-70b", on="h100-sxm-80gb x 64", seq_len=8192, global_batch=512, top=1)
        answer.report(page, no_search=True)
        with opened(page, WIDTH) as found:
            hidden = [f"section:not({', '.join('#' + name for name in SHOWN)})", *LEFT_OUT.split(", ")]
            found.page.evaluate(
                "selectors => document.querySelectorAll(selectors).forEach((one) => { one.style.display = 'none'; })",
                ", ".join(hidden),
            )
            found.page.wait_for_timeout(500)
            found.page.screenshot(path=ROOT / "docs" / "report.png", full_page=True)


if __name__ == "__main__":
    main()
