"""Reports of large plans in a browser: size, times, charts, requests, messages, and figures equal to ``predict``.

    python benchmarks/report_pages.py            prints the tables
    python benchmarks/report_pages.py --write    also writes benchmarks/report-pages.md

Needs Chromium. First paint and the time until all charts are drawn are wall clock from the start of loading.
"""

import json
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests" / "present" / "page")]
from browser import opened, serious_findings  # noqa: E402

MESHWRIGHT = (sys.executable, "-m", "meshwright")
QUESTIONS = {
    "70B on 64": ("llama-3.1-70b", "h100-sxm-80gb x 64", 8192, 512),
    "DeepSeek-V3 on 2,048": ("deepseek-v3", "h800-sxm-80gb x 2048", 4096, 15360),
    "405B on 16,384": ("llama-3.1-405b", "h100-sxm-80gb x 16384", 8192, 2048),
}
SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"), (1920, "light")]
MOST_BYTES, MOST_PAINT_S, MOST_DRAWN_S = 3_000_000, 1.0, 2.0
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
DRAWN = "Number(document.documentElement.dataset.drawnMs) / 1000"


def said(*arguments: str) -> dict:
    """The JSON document of a command."""
    done = subprocess.run(
        [*MESHWRIGHT, *arguments, "--json"], check=False, capture_output=True, text=True, cwd=ROOT
    )
    return json.loads(done.stdout)


def report_of(folder: Path, question: tuple) -> tuple[Path, dict, dict]:
    """A question's report with its document, and the document of ``predict``."""
    model, cluster, seq_len, batch = question
    plan = folder / f"{model}.yaml"
    sizes = ("--seq-len", str(seq_len), "--global-batch", str(batch), "--top", "1")
    said("plan", model, "--on", cluster, *sizes, "-o", str(plan))
    document = said("report", str(plan), "--tokens", "1T")
    return Path(document["path"]), document, said("predict", str(plan), "--tokens", "1T")


def looked_at(page: Path) -> list[dict]:
    """What a browser finds on a page at each size."""
    rows = []
    for width, scheme in SIZES:
        with opened(page, width, scheme) as found:
            rows.append(
                {
                    "size": f"{width} px, {scheme}",
                    "paint_s": found.page.evaluate(PAINT),
                    "drawn_s": found.page.evaluate(DRAWN),
                    "charts": found.page.locator(".chart canvas").count(),
                    "places": found.page.locator(".chart").count(),
                    "overflow": found.page.evaluate("document.documentElement.scrollWidth") - width,
                    "messages": len(found.messages),
                    "requests": len(found.requests) - 1,
                    "findings": len(serious_findings(found.page)),
                }
            )
    return rows


def page_of(cases: dict[str, tuple]) -> tuple[list[str], bool]:
    """The lines of the page, and whether all that is promised holds."""
    lines = [
        "| report | bytes | actions | figures of `predict` | size | first paint | all drawn | charts | wider than the "
        "window | messages | requests | findings of axe-core |",
        "|---|--:|--:|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    holds = True
    for name, (document, predicted, rows) in cases.items():
        actions = sum(len(s["body"]) for rank in document["timeline"]["ranks"] for s in rank["streams"])
        equal = document["predict"] == predicted
        holds &= equal and document["bytes"] <= MOST_BYTES
        for row in rows:
            holds &= row["charts"] == row["places"] and row["overflow"] <= 0
            holds &= not (row["messages"] or row["requests"] or row["findings"])
            lines.append(
                f"| {name} | {document['bytes']:,} | {actions:,} | {'equal' if equal else 'DIFFERENT'} | {row['size']} "
                f"| {row['paint_s']:.2f} s | {row['drawn_s']:.2f} s | {row['charts']} of {row['places']} "
                f"| {max(row['overflow'], 0)} px | {row['messages']} | {row['requests']} | {row['findings']} |"
            )
    slowest = max(row["paint_s"] for *_, rows in cases.values() for row in rows)
    drawn = max(row["drawn_s"] for *_, rows in cases.values() for row in rows)
    lines += [
        "",
        f"Aimed at: at most {MOST_BYTES:,} bytes, first paint within {MOST_PAINT_S:g} s (slowest {slowest:.2f} s), all "
        f"charts within {MOST_DRAWN_S:g} s (slowest {drawn:.2f} s), no message, request or serious finding.",
    ]
    return lines, holds


def main() -> None:
    """Print the tables, and write them if asked to. Exit with 1 where a promise other than a time is broken."""
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, question in QUESTIONS.items():
            page, document, predicted = report_of(Path(folder), question)
            cases[name] = (document, predicted, looked_at(page))
    table, holds = page_of(cases)
    lines = [
        "# Reports in a browser",
        "",
        f"Written by `python benchmarks/report_pages.py --write` on {date.today()}, Python "
        f"{platform.python_version()}, {platform.machine()}, headless Chromium. Times are wall clock.",
        "",
        *table,
    ]
    print("\n".join(lines))
    if "--write" in sys.argv[1:]:
        (ROOT / "benchmarks" / "report-pages.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(not holds)


if __name__ == "__main__":
    main()
