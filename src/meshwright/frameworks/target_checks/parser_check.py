"""Does the target's own parser accept what was exported? Asked of the target itself, in a Python that has it.

``scripts/TARGET_parser_check.py`` takes the folder of exported files, hands them to the target's parser and says its
verdict and the values that the parser read back.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.errors import InputError, Problem
from meshwright.frameworks.target_checks.target_python import (
    TARGET_CHECKS,
    require_module,
    run_json_script,
    temporary_folder,
)


@dataclass(frozen=True, slots=True)
class ParserVerdict:
    """Output of the target's parser, and the values that it read back."""

    accepted: bool
    message: str
    values: Mapping[str, object]
    python: str

    def to_json(self) -> dict[str, object]:
        """Return the public form."""
        return {
            "by": "parser",
            "accepted": self.accepted,
            "message": self.message,
            "values": dict(self.values),
            "python": self.python,
        }


def check_with_parser(target: str, texts: Mapping[str, str], python: str) -> ParserVerdict:
    """Ask the target in the interpreter ``python``. Raises InputError where it can not be asked there."""
    asked = TARGET_CHECKS[target]
    if asked.parser is None:
        raise InputError(Problem("check", target, asked.why_not, "export without --check"))
    require_module(python, asked.module)
    with temporary_folder(texts) as (folder, scripts):
        data = run_json_script([python, str(scripts / asked.parser), str(folder / target)])
    return ParserVerdict(bool(data["accepted"]), str(data["message"]), data["values"], python)
