"""The answer of a verb: its document, what prints it, and its forms for notebooks."""

import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

from meshwright.present.data_frame import data_frame
from meshwright.present.html.answer_html import answer_html


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

    def __repr__(self) -> str:
        """Return what the verb prints, remarks first."""
        text = StringIO()
        with redirect_stdout(text), redirect_stderr(text):
            self.render(self.data)
        return "\n".join([*(f"Remark: {remark}" for remark in self.remarks), text.getvalue().rstrip()])

    def _repr_html_(self) -> str:
        """Return the answer with pictures, as notebooks show it."""
        return answer_html(self.data, self.render, self.remarks)
