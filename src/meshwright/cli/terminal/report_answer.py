"""Answer ``report`` from its options by name: gather the page's data, write the page, say where it is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.output import check_writable, error_data, write_whole
from meshwright.cli.terminal.search_answer import several
from meshwright.errors import InfeasibleError, InputError, Problem
from meshwright.present.console import console

Progress = Callable[[str, float], None]


def reported(given: Mapping[str, Any], progress: Progress | None = None) -> Answer:
    """Answer ``report`` with its arguments by name; the page is written where its plan does not fit, too."""
    from meshwright.explanation.report.report_document import report_document
    from meshwright.explanation.report.report_requests import file_report
    from meshwright.present.page.report_page import reasons_page, report_page

    plan, against = Path(given["plan"]), given["against"]
    page = Path(given["output"] or plan.with_suffix(".html"))
    if page.exists() and plan.exists() and page.samefile(plan):
        rule = "is the plan itself, which would be lost"
        raise InputError(Problem("output", str(page), rule, "another name"))
    check_writable(page, "output")
    terms = {name: given[name] for name in ("tokens", "price", "constants")}
    others = (against,) if isinstance(against, str | Path) else tuple(against)
    try:
        request = file_report(
            plan, others, assume=several(given["assume"] or ()), search=not given["no_search"], **terms
        )
        data = report_document(request, progress or (lambda what, part: None))
    except InfeasibleError as error:
        write_whole(page, reasons_page(str(plan), error_data(error)))
        raise
    text = report_page(data)
    write_whole(page, text)
    found = data | {"path": str(page), "bytes": len(text.encode())}
    return Answer(found, _print, request.report.fits, request.report.remarks)


def _print(data: dict[str, Any]) -> None:
    out = console()
    out.print(escape(data["sentence"]))
    size = f"{data['bytes'] / 2**20:.1f} MiB"
    out.print(f"The report is in {escape(data['path'])} ({size}); open it in a browser.", soft_wrap=True)
