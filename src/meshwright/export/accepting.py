"""Does the target's own parser accept what was exported? Asked of the target itself, in a Python that has it.

``parsers/TARGET_accepts.py`` takes the folder of exported files, hands them to the target's parser and says its verdict
and the values that the parser read back.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.errors import InputError, Problem
from meshwright.export.interpreters import ASKED, laid_out, need_module, told


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target said, and the values that it read back."""

    accepted: bool
    message: str
    values: Mapping[str, object]
    python: str

    def to_json(self) -> dict[str, object]:
        """The public form."""
        return {
            "by": "parser",
            "accepted": self.accepted,
            "message": self.message,
            "values": dict(self.values),
            "python": self.python,
        }


def ask(target: str, texts: Mapping[str, str], python: str) -> Verdict:
    """Ask the target in the interpreter ``python``. Raises InputError where it can not be asked there."""
    asked = ASKED[target]
    if asked.parser is None:
        raise InputError(Problem("check", target, asked.why_not, "export without --check"))
    need_module(python, asked.module)
    with laid_out(texts) as (folder, scripts):
        data = told([python, str(scripts / asked.parser), str(folder / target)])
    return Verdict(bool(data["accepted"]), str(data["message"]), data["values"], python)
