"""Write data as YAML 1.1: scripts as literal blocks, other text in quotes unless it is plain.

``on``, ``no`` or ``y`` are booleans in YAML 1.1 and text in YAML 1.2, so such words are quoted. Values are
mappings, sequences, numbers, booleans, null and text.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9./_-]*").fullmatch
BLOCK = re.compile(r"[!-~][ -~\t]*\n(?:(?:[ -~\t]*\n)*[ -~\t]*[!-~]\n)?").fullmatch
"""Text of several lines that a literal block reproduces exactly: ASCII, no space first, one line end last."""
BOOLEAN = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))


def yaml_documents(top: str, documents: Sequence[Mapping[str, object]]) -> str:
    """Return the documents of one file under the comment ``top``."""
    texts = ["\n".join(_lines(document)) for document in documents]
    return "\n".join([top, "\n---\n".join(texts), ""])


def _lines(value: Mapping[str, object] | Sequence[object]) -> Iterator[str]:
    """Yield the lines of a mapping or a sequence that is not empty."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{_scalar(key)}:", item, pad="  " if isinstance(item, Mapping) else "")
    else:
        for item in value:
            yield from _item(item)


def _item(value: object) -> Iterator[str]:
    """Yield an entry of a sequence: its first line follows the hyphen."""
    if isinstance(value, Mapping | list | tuple) and value:
        first, *rest = _lines(value)
        yield f"- {first}"
        yield from _indented(rest, "  ")
    else:
        yield from _entry("-", value, pad="")


def _entry(start: str, value: object, *, pad: str) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple) and value:
        yield start
        yield from _indented(_lines(value), pad)
    elif isinstance(value, str) and BLOCK(value):
        yield f"{start} |"
        yield from _indented(value.split("\n")[:-1], "  ")
    else:
        yield f"{start} {_scalar(value)}"


def _indented(lines: Iterable[str], pad: str) -> Iterator[str]:
    """Yield the lines indented; empty ones stay empty."""
    return (pad + line if line else line for line in lines)


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return value if PLAIN(value) and value.lower() not in BOOLEAN else _quoted(value)
    if isinstance(value, Mapping):
        return "{}"
    return "[]" if isinstance(value, Sequence) else json.dumps(value)


def _quoted(text: str) -> str:
    plain = (c if " " <= c <= "~" and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(plain)}"'
