"""YAML text to plain data and back: the small, safe part of YAML 1.2 that plan files use.

Accepted: one document of mappings, lists, text, numbers, booleans and null. Keys are always text (``5:`` is
the key "5"). Refused with the place in the file: aliases and anchors (a few lines of them can expand without
limit), tags, dates, binary, control characters, endless nesting, duplicate keys, numbers that are not finite.
Lists become tuples, because plans are frozen values.
"""

import re
from collections.abc import Mapping
from io import StringIO
from math import isfinite
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.scalarstring import SingleQuotedScalarString
from ruamel.yaml.tag import Tag

from meshwright.errors import InputError, Problem

MAX_BYTES = 2**17
MAX_DEPTH = 24
PLAIN = "write plain YAML 1.2: one `key: value` a line"
MAX_DIGITS = 40
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+ -]*").fullmatch
_TAG = "tag:yaml.org,2002:"
_SCALARS = tuple(_TAG + name for name in ("str", "int", "float", "bool", "null"))


class PlainComposer(Composer):
    """Composes nodes of the accepted part of YAML and refuses the rest where it stands."""

    def compose_node(self, parent: Node | None, index: Node | int | None) -> Node:
        """Compose the next node; keys of mappings (``index`` None) become text."""
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise ComposerError(None, None, "anchors and aliases are not used here", event.start_mark)
        if getattr(event, "ctag", None) is not None:
            raise ComposerError(None, None, "tags are not used here", event.start_mark)
        node = super().compose_node(parent, index)
        is_key = isinstance(parent, MappingNode) and index is None
        if isinstance(node, ScalarNode):
            _check_scalar(node, is_key)
        elif is_key:
            raise ComposerError(None, None, "a key must be text", node.start_mark)
        return node


def _check_scalar(node: ScalarNode, is_key: bool) -> None:
    if is_key:
        node.ctag = Tag(suffix=_TAG + "str")
    if node.tag not in _SCALARS:
        raise ComposerError(None, None, "must be text, a number, true, false or null", node.start_mark)
    if not node.value.isprintable():
        raise ComposerError(None, None, "must be printable text on one line", node.start_mark)
    if node.tag in _SCALARS[1:3] and len(node.value) > MAX_DIGITS:
        raise ComposerError(None, None, f"a number of more than {MAX_DIGITS} digits", node.start_mark)


def read_mapping(text: str, where: str) -> dict[str, object]:
    """Read the mapping that ``text`` holds; ``where`` names the text in problems. Raise InputError."""
    data = read_value(text, where)
    if data is None:
        raise InputError(Problem(where, None, "is empty", "write a plan, or make one with `meshwright plan`"))
    if not isinstance(data, dict):
        raise InputError(Problem(where, data, "must be a mapping of keys to values", "start with `plan: 1`"))
    return data


def read_value(text: str, where: str) -> object:
    """Read the one YAML value that ``text`` holds, in plain types. Raise InputError."""
    if len(text) > MAX_BYTES:
        raise InputError(Problem(where, f"{len(text)} characters", f"more than {MAX_BYTES}", "shorten it"))
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = PlainComposer
    yaml.max_depth = MAX_DEPTH
    try:
        return _frozen(yaml.load(text), where)
    except (YAMLError, ValueError) as error:
        raise InputError(_unreadable(error, text, where)) from None


def write_mapping(data: Mapping[str, object], flow: frozenset[str], notes: Mapping[str, str]) -> str:
    """Write ``data`` as YAML. Paths in ``flow`` go on one line, notes (by dotted path) become comments."""
    yaml = YAML()
    yaml.width = 2**20
    stream = StringIO()
    yaml.dump(_commented(data, "", flow, notes), stream)
    return stream.getvalue()


def _unreadable(error: Exception, text: str, where: str) -> Problem:
    mark = error.problem_mark or error.context_mark if isinstance(error, MarkedYAMLError) else None
    reason = error.problem if isinstance(error, MarkedYAMLError) and error.problem else str(error)
    reason = " ".join(reason.split())[:200]
    if mark is None:
        return Problem(where, text[:80], f"cannot be read as YAML: {reason}", PLAIN)
    lines = text.splitlines()
    value = lines[mark.line] if mark.line < len(lines) else ""
    place = f"line {mark.line + 1}, column {mark.column + 1}"
    return Problem(where, value, f"cannot be read as YAML: {reason} ({place})", PLAIN)


def _frozen(value: object, where: str) -> object:
    if isinstance(value, dict):
        return {str(key): _frozen(item, f"{where}: {key}") for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_frozen(item, where) for item in value)
    if isinstance(value, float) and not isfinite(value):
        raise InputError(Problem(where, value, "must be finite", "write a number, such as 1.5"))
    return value


def _commented(value: object, path: str, flow: frozenset[str], notes: Mapping[str, str]) -> object:
    if isinstance(value, list | tuple):
        sequence = CommentedSeq(_commented(item, path, flow, {}) for item in value)
        sequence.fa.set_flow_style()
        return sequence
    if not isinstance(value, Mapping):
        return _quoted(value)
    mapping = CommentedMap()
    for name, item in value.items():
        key, inner = _quoted(name), f"{path}.{name}" if path else name
        mapping[key] = _commented(item, inner, flow, notes)
        if inner in notes:
            _annotate(mapping, key, " ".join(notes[inner].split()))
    if path in flow and not any(note.startswith(f"{path}.") for note in notes):
        mapping.fa.set_flow_style()
    return mapping


def _quoted(value: object) -> object:
    """Text in quotes unless it is plainly safe; what would read as a number or null, the library quotes."""
    return SingleQuotedScalarString(value) if isinstance(value, str) and not _SAFE(value) else value


def _annotate(mapping: CommentedMap, key: object, note: str) -> None:
    """Add a comment after the value, or above the key where the value takes several lines."""
    value = mapping[key]
    if isinstance(value, CommentedMap) and not value.fa.flow_style():
        mapping.yaml_set_comment_before_after_key(key, before=note)
    else:
        mapping.yaml_add_eol_comment(note, key, column=0)


def read_file(path: str | Path, field: str, hint: str) -> str:
    """Return the text of a user's file: UTF-8, a byte order mark is fine, at most ``MAX_BYTES``.

    Raises InputError, with ``field`` as the field and ``hint`` as the suggestion.
    """
    reason = ""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) <= MAX_BYTES:
            return raw.decode("utf-8-sig")
        reason = f"is too large: more than {MAX_BYTES} bytes"
    except UnicodeDecodeError as error:
        reason = f"is not text: byte {error.start} is not UTF-8"
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise InputError(Problem(field, str(path), reason, hint))
