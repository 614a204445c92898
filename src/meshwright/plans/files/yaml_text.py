"""Read YAML text as plain data: the small, safe part of YAML 1.2 that plan files use.

Accepted: one document of mappings, lists, text, numbers, booleans and null. Keys are always text (``5:`` is
the key "5"). Refused with the place in the file: aliases and anchors (a few lines of them can expand without
limit), tags, dates, binary, control characters, endless nesting, duplicate keys, numbers that are not finite.
Lists become tuples, because plans are frozen values.
"""

from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.tag import Tag

from meshwright.errors import InputError, Problem

MAX_BYTES = 2**17
MAX_DEPTH = 24
PLAIN = "write plain YAML 1.2: one `key: value` a line"
MAX_DIGITS = 40
_TAG = "tag:yaml.org,2002:"
_SCALARS = tuple(_TAG + name for name in ("str", "int", "float", "bool", "null"))


class PlainComposer(Composer):
    """Composes nodes of the accepted part of YAML and refuses the rest where it stands.

    ``keys`` are the paths of the keys that were composed so far.
    """

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self.keys: list[tuple[str, ...]] = []
        self._inside: tuple[str, ...] = ()

    def compose_node(self, parent: Node | None, index: Node | int | None) -> Node:
        """Compose the next node; keys of mappings (``index`` None) become text."""
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise ComposerError(None, None, "anchors and aliases are not used here", event.start_mark)
        if getattr(event, "ctag", None) is not None:
            raise ComposerError(None, None, "tags are not used here", event.start_mark)
        around = self._inside
        self._inside = (*around, index.value) if isinstance(index, ScalarNode) else around
        node = super().compose_node(parent, index)
        self._inside = around
        is_key = isinstance(parent, MappingNode) and index is None
        if isinstance(node, ScalarNode):
            _check_scalar(node, is_key)
        elif is_key:
            raise ComposerError(None, None, "a key must be text", node.start_mark)
        if is_key:
            self.keys.append((*around, node.value))
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


def read_mapping(text: str, where: str, form: str = "", *, finite: bool = True) -> dict[str, object]:
    """Read the mapping that ``text`` holds; ``where`` names the text in problems. Raise InputError.

    ``form`` suggests what to write in place of what is no mapping; ``finite`` as of ``read_value``.
    """
    data = read_value(text, where, finite=finite)
    if data is None:
        raise InputError(
            Problem(where, None, "is empty", form or "write a plan, or make one with `meshwright plan`")
        )
    if not isinstance(data, dict):
        raise InputError(
            Problem(where, data, "must be a mapping of keys to values", form or "start with `plan: 1`")
        )
    return data


def read_value(text: str, where: str, *, finite: bool = True) -> object:
    """Read the one YAML value that ``text`` holds, in plain types. Raise InputError.

    ``finite``: numbers that are not finite are refused, too.
    """
    if len(text) > MAX_BYTES:
        raise InputError(Problem(where, f"{len(text)} characters", f"more than {MAX_BYTES}", "shorten it"))
    try:
        return _frozen(_plain_yaml().load(text), where, finite=finite)
    except (YAMLError, ValueError) as error:
        raise InputError(_unreadable(error, text, where)) from None


def keys_read(text: str) -> list[tuple[str, ...]]:
    """Return the path of every key of ``text``, in order, up to the first error."""
    yaml = _plain_yaml()
    with suppress(YAMLError, ValueError):
        yaml.load(text[:MAX_BYTES])
    composer: PlainComposer = yaml.composer
    return composer.keys


def _plain_yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = PlainComposer
    yaml.max_depth = MAX_DEPTH
    return yaml


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


def _frozen(value: object, where: str, path: tuple[str, ...] = (), *, finite: bool) -> object:
    if isinstance(value, dict):
        return {
            str(key): _frozen(item, where, (*path, str(key)), finite=finite) for key, item in value.items()
        }
    if isinstance(value, list):
        return tuple(
            _frozen(item, where, (*path, str(place)), finite=finite) for place, item in enumerate(value)
        )
    if finite and isinstance(value, float) and not isfinite(value):
        field = f"{where}: {'.'.join(path)}" if path else where
        raise InputError(Problem(field, value, "must be finite", "write a number, such as 1.5"))
    return value


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
