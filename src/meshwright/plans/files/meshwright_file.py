"""Files that Meshwright writes and reads again: plans, clusters, stacks, stage times.

A written file begins with the line ``WRITTEN`` and ends with the line ``END``, YAML's end of a document. A file with
the first and without the second was cut off and is refused: its missing keys would take defaults that nobody chose. A
file without the first line was written by hand, and what it leaves out takes its defaults. In both a key has a value:
``[]`` and ``{}`` are values, YAML's null is none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO

from ruamel.yaml import YAML

from meshwright.errors import InputError, Problem
from meshwright.plans.files.yaml_text import keys_read, read_mapping

WRITTEN = "# written by meshwright"
END = "..."


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file. ``always``: top-level keys of every written one, ``values``: examples for keys without a value.

    ``prefix`` stands before the keys in problems; ``form`` suggests what to write where a file has no keys.
    """

    noun: str
    always: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    form: str = ""


def write_file(data: Mapping[str, object], above: Sequence[str] = (), below: Sequence[str] = ()) -> str:
    """Return ``data`` as the text of a written file, with lines of comments above and below its keys."""
    yaml = YAML()
    yaml.width = 2**20
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = StringIO()
    yaml.dump(data, stream)
    comments = [[f"# {line}" if line else "#" for line in lines] for lines in (above, below)]
    return "\n".join([WRITTEN, *comments[0], stream.getvalue().rstrip("\n"), *comments[1], END, ""])


def read_keys(text: str, where: str, kind: FileKind, problems: list[Problem]) -> dict[str, object]:
    """Read the keys of a file; ``where`` names it in problems. Add those without a value to ``problems``.

    Raises InputError if the text is no mapping or a written file that was cut off.
    """
    if is_cut_off(text):
        raise InputError(_cut_off(text, where, kind))
    return _with_values(read_mapping(text, where, kind.form), kind.prefix, kind, problems)


def is_cut_off(text: str) -> bool:
    """Return true for the text of a written file without its last line."""
    lines = [line.rstrip() for line in text.split("\n")]
    return lines[0] == WRITTEN and END not in lines


def with_empty_keys(first: Sequence[Problem], others: Sequence[Problem]) -> list[Problem]:
    """Return problems that were found first, then the others of a file that was read without its empty keys.

    A required key without a value is one problem, with the suggestion of the missing key.
    """
    by_field = {problem.field: problem for problem in others}
    fields = {problem.field for problem in first if problem.value is None}
    first = [
        replace(problem, suggestion=by_field[problem.field].suggestion)
        if problem.field in fields & by_field.keys()
        else problem
        for problem in first
    ]
    return [*first] + [problem for problem in others if problem.field not in fields]


def _cut_off(text: str, where: str, kind: FileKind) -> Problem:
    keys = keys_read(text)
    if keys and text.rstrip().endswith(keys[-1][-1]):  # cut off in the key itself
        keys.pop()
    last = f"the last key read is `{'.'.join(keys[-1])}`" if keys else "no key was read"
    rule = (
        f"was written by meshwright and is cut off: {last}; a written {kind.noun} always has "
        f"{', '.join(kind.always)}, and `{END}` as its last line"
    )
    return Problem(where, None, rule, f"write the {kind.noun} again, or copy all of its file")


def _with_values(
    value: Mapping[str, object], path: str, kind: FileKind, problems: list[Problem]
) -> dict[str, object]:
    """Return a mapping without the keys that have no value, also inside of it."""
    found: dict[str, object] = {}
    for key, item in value.items():
        inner = f"{path}.{key}" if path else key
        if item is None:
            example = f"write `{key}: {kind.values[key]}`" if key in kind.values else "give it a value"
            problems.append(Problem(inner, None, "has no value", f"{example}, or take the key out"))
        else:
            found[key] = _value(item, inner, kind, problems)
    return found


def _value(value: object, path: str, kind: FileKind, problems: list[Problem]) -> object:
    if isinstance(value, dict):
        return _with_values(value, path, kind, problems)
    if isinstance(value, tuple):
        return tuple(_value(item, f"{path}.{place}", kind, problems) for place, item in enumerate(value))
    return value
