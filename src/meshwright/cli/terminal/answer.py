"""The answer of a verb: its document, what prints it, and its forms for notebooks."""

import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from meshwright.errors import InputError, Problem
from meshwright.present.data_frame import data_frame


@dataclass(frozen=True, repr=False)
class ReportPage:
    """The page of a report, which notebooks show in a frame of its own."""

    html: str

    def _repr_html_(self) -> str:
        """Return the frame."""
        return f'<iframe title="report" width="100%" height="900" srcdoc="{escape(self.html)}"></iframe>'


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer of a verb. ``ok`` is False where the command line exits with 1."""

    data: dict[str, Any]
    render: Callable[[dict[str, Any]], None]
    ok: bool = True
    remarks: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the document that the verb prints with ``--json``."""
        plain: dict[str, Any] = json.loads(json.dumps(self.data))
        return plain

    def to_frame(self) -> Any:
        """Return the document as a pandas frame; ``present/data_frame.py`` says which rows and columns it has."""
        return data_frame(self.to_dict())

    def report(self, output: str | Path | None = None, *, no_search: bool = False) -> "ReportPage":
        """Return the interactive page about the plan of this answer, written to ``output`` if it is given.

        Of several plans the first is taken. Raises InputError for an answer that holds no plan.
        """
        from meshwright.explanation.report.report_document import report_document
        from meshwright.explanation.report.report_requests import file_report
        from meshwright.present.page.report_page import report_page

        plans = self.data.get("plans") or [self.data]
        plan = plans[0].get("long") or plans[0].get("plan")
        if not isinstance(plan, dict):
            rule = "holds no plan that a report could be about"
            raise InputError(
                Problem("answer", None, rule, "an answer of plan or explain, or meshwright.report")
            )
        document = report_document(file_report(plan, search=not no_search), lambda what, part: None)
        page = ReportPage(report_page(document))
        if output is not None:
            Path(output).write_text(page.html, encoding="utf-8")
        return page

    def __repr__(self) -> str:
        """Return what the verb prints, remarks first."""
        text = StringIO()
        with redirect_stdout(text), redirect_stderr(text):
            self.render(self.data)
        return "\n".join([*(f"Remark: {remark}" for remark in self.remarks), text.getvalue().rstrip()])

    def _repr_html_(self) -> str:
        """Return the answer with pictures, as notebooks show it."""
        from meshwright.present.html.answer_html import answer_html

        return answer_html(self.data, self.render, self.remarks)
