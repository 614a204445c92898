"""Read a problem's suggestion as settings of a plan, and write settings as a suggestion.

Alternatives stand between ``, or ``. One is a line of a plan file (``pp: 2, virtual_stages: 1``, perhaps with a remark
in parentheses), a value or a list of values of the problem's own key (``one of zero1, zero2``), or ``take it out``.
"""

import re
from collections.abc import Iterator

from meshwright.errors import InputError, Problem, written
from meshwright.plans.files.validation_messages import sections
from meshwright.plans.files.yaml_text import read_value
from meshwright.plans.forms.short import ShortPlan

Settings = tuple[str, ...]
"""Settings as ``--set`` takes them: ``tp=4``."""
IN_ENTRIES = "synchronise."
"""Fields of entries of a list: keys of their suggestions are the entry's, not those of the plan with the same name."""
GIVEN = ("plan", "model", "cluster", "stack")
"""Keys that name what a plan is for: no suggestion about them is a change of the plan."""
_OR = re.compile(r", or | or (?=[a-z_]+: )")
_REMARK = re.compile(r" \([^()]*\)$")
_REMOVAL = re.compile(r"(?:take|leave) (\w+) out")
_LIST = re.compile(r"(?:one of |did you mean )(.+?)\??")
_VALUE = re.compile(r"[\w.-]+|\[[\w, -]+\]")


def suggested_settings(problem: Problem) -> tuple[Settings, ...]:
    """Return the alternatives of a suggestion that change the plan; none for prose, or for entries of a list."""
    if problem.field.startswith(IN_ENTRIES):
        return ()
    return tuple(_alternatives(problem.field, problem.suggestion))


def _alternatives(field: str, text: str) -> Iterator[Settings]:
    paths = sections(ShortPlan)
    own = field if paths.get(field.rpartition(".")[2]) == field and field not in GIVEN else ""
    listed = _LIST.fullmatch(text)
    if listed:
        values = re.split(r", | or ", listed[1])
        yield from ((f"{own}={value}",) for value in values if own and _VALUE.fullmatch(value))
        return
    for part in _OR.split(text):
        removal = _REMOVAL.fullmatch(part)
        if removal:
            key = own if removal[1] == "it" else removal[1]
            if paths.get(key.rpartition(".")[2]):
                yield (f"{key}=null",)
        elif own and _VALUE.fullmatch(part):
            yield (f"{own}={part}",)
        else:
            yield from _line(_REMARK.sub("", part), paths)


def _line(text: str, paths: dict[str, str]) -> Iterator[Settings]:
    """Yield the settings of a line of a plan file; nothing where it has other keys."""
    try:
        found = read_value("{" + text + "}", "suggestion")
    except InputError:
        return
    if isinstance(found, dict) and found and all(key in paths and key not in GIVEN for key in found):
        yield tuple(f"{key}={written(value)}" for key, value in found.items())


def suggestion_text(settings: Settings) -> str:
    """Write settings as a line of a plan file."""
    pairs, known = (setting.partition("=") for setting in settings), sections(ShortPlan)
    return ", ".join(
        f"{name if name in known else name.rpartition('.')[2]}: {value}" for name, _, value in pairs
    )
