"""Hold torchtitan's options against the requirements between them.

Source: ``torchtitan-0.3.0-requirements.csv``, from the assertions of torchtitan 0.3.0 (``trainer.py``,
``config/configs.py``, ``models/common/token_dispatcher.py``).
"""

from collections.abc import Iterator, Mapping, Sequence

from meshwright.errors import Problem
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.imported_file import Fact, number_in
from meshwright.frameworks.importing.option_requirements import (
    OPEN,
    UNKNOWN,
    GivenValues,
    broken_requirements,
    read_defaults,
    read_requirements,
)

PACKAGE, RELEASE = "meshwright.frameworks.torchtitan", "torchtitan-0.3.0"


def requirement_problems(
    options: Mapping[str, GivenOption], facts: Mapping[str, Fact], *, complete: bool
) -> Iterator[Problem]:
    """Yield the options that lack another one, or that exclude it.

    The options are ``complete`` where their configuration is known; otherwise its function may set those left out.
    """

    def words(name: str) -> Sequence[str] | None:
        given = options.get(name)
        if given is None:
            return None if complete else OPEN
        return given.values if given.known else UNKNOWN

    numbers = {"@pp": number_in(facts, "layout.pp"), "@experts": number_in(facts, "model.experts", 0)}
    given = GivenValues(words, numbers, read_defaults(PACKAGE, RELEASE))
    for option, rule, suggestion in broken_requirements(read_requirements(PACKAGE, RELEASE), given):
        yield Problem(option, " ".join(options[option].values) or "on", rule, suggestion)
