"""The answer of a verb: its document, and what prints it."""

import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any


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

    def __repr__(self) -> str:
        """Return what the verb prints, remarks first."""
        text = StringIO()
        with redirect_stdout(text), redirect_stderr(text):
            self.render(self.data)
        return "\n".join([*(f"Remark: {remark}" for remark in self.remarks), text.getvalue().rstrip()])
