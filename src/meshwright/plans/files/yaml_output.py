"""Lay out data for YAML: what goes on one line, comments by path, and text in quotes unless it is plainly safe."""

import re
from collections.abc import Mapping

from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import SingleQuotedScalarString

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+ -]*").fullmatch


def commented(data: Mapping[str, object], flow: frozenset[str], notes: Mapping[str, str]) -> CommentedMap:
    """Return ``data`` laid out. Paths in ``flow`` go on one line, notes (by dotted path) become comments."""
    return _mapping(data, "", flow, notes)


def _mapping(
    data: Mapping[str, object], path: str, flow: frozenset[str], notes: Mapping[str, str]
) -> CommentedMap:
    mapping = CommentedMap()
    for name, item in data.items():
        key, inner = _quoted(name), f"{path}.{name}" if path else name
        mapping[key] = _value(item, inner, flow, notes)
        if inner in notes:
            _annotate(mapping, key, " ".join(notes[inner].split()))
    if path in flow and not any(note.startswith(f"{path}.") for note in notes):
        mapping.fa.set_flow_style()
    return mapping


def _value(value: object, path: str, flow: frozenset[str], notes: Mapping[str, str]) -> object:
    if isinstance(value, list | tuple):
        sequence = CommentedSeq(_value(item, path, flow, {}) for item in value)
        sequence.fa.set_flow_style()
        return sequence
    return _mapping(value, path, flow, notes) if isinstance(value, Mapping) else _quoted(value)


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
