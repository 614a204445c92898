"""The words of a shell script, read and never run: quotes, comments, line continuations, variables with known values.

What is followed: ``NAME=text``, ``export NAME=text``, arrays, ``$NAME``, ``${NAME}``, ``${NAME:-default}`` and whole
arithmetic in ``$((…))``. What only a running shell could know (``$1``, ``$(command)``, variables of the environment)
is left as it stands and the word is not ``known``. Words of an array or of a variable are read where they are
written, not again where they are used; so options count once. Of an ``if`` or ``case``, and behind ``&&`` and ``||``,
all branches are read; words in them are ``conditional``, and there a variable that has a value keeps it: ``unsure``
names it. What was set with ``readonly`` stays.
"""

import ast
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from meshwright.errors import InputError, Problem

MAX_VALUE = 2**16
MAX_NUMBER = 2**62
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9]+)(\+?=)")
_VARIABLE = re.compile(
    r"\$(?:([A-Za-z_][A-Za-z0-9_]*|[0-9])|\{([A-Za-z_][A-Za-z0-9_]*|[0-9]+)(?::?-([^{}$`]*))?\})"
)
_ARITHMETIC = re.compile(r"\$\(\(([^()$`]*(?:\([^()$`]*\)[^()$`]*)*)\)\)")
_SPOKEN = ("echo", "printf")
_CONDITIONS = ("&&", "||")
_OPENING, _CLOSING = ("if", "case"), ("fi", "esac")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True, slots=True)
class Word:
    """One word with its variables filled in. ``ends`` is true for the last word of a command."""

    text: str
    line: int
    known: bool = True
    conditional: bool = False
    ends: bool = False


class Script(NamedTuple):
    """All words of a script in order, the values of its variables, and which of these hang on a condition."""

    words: tuple[Word, ...]
    variables: Mapping[str, str]
    unsure: Mapping[str, int]


@dataclass(slots=True)
class _Reader:
    """Reads commands one after the other and remembers the values of variables."""

    variables: dict[str, str]
    depth: int = 0
    after_condition: bool = False
    words: list[Word] = field(default_factory=list)
    pinned: set[str] = field(default_factory=set)
    unsure: dict[str, int] = field(default_factory=dict)

    @property
    def conditional(self) -> bool:
        """Return true inside a condition, whose commands may not run."""
        return self.depth > 0 or self.after_condition

    def command(self, raw: list[tuple[str, int]]) -> None:
        """Take in the raw words of one command; one that is only a sign says what the next hangs on."""
        names = [text for text, _ in raw]
        if names[0] in _CONDITIONS:
            self.after_condition = True
            return
        self._command(raw, names)
        self.after_condition = False

    def _command(self, raw: list[tuple[str, int]], names: list[str]) -> None:
        if names[0] in _SPOKEN:
            return
        self.depth += sum(name in _OPENING for name in names[:1])
        for index, (text, line) in enumerate(raw):
            match = _ASSIGNMENT.match(text)
            if match and not text.startswith("-"):
                self._assign(match.group(1), match.group(2), text[match.end() :], line)
                if names[0] == "readonly":
                    self.pinned.add(match.group(1))
            else:
                self._word(text, line, ends=index == len(raw) - 1)
        self.depth -= min(self.depth, sum(name in _CLOSING for name in names[:1]))

    def _assign(self, name: str, how: str, raw: str, line: int) -> None:
        value = self.filled(_unquoted(raw))
        if "--" in value:
            for part in value.split():
                self._word(part, line)
            self._end()
            value = ""
        old = self.variables.get(name, "") if how == "+=" else ""
        if len(old) + len(value) > MAX_VALUE:
            rule = f"its value grows over {MAX_VALUE} characters"
            raise InputError(Problem(f"line {line}", name, rule, "a plain argument file"))
        if name in self.pinned:
            return
        if self.conditional and self.variables.get(name, value) != value and how == "=":
            self.unsure.setdefault(name, line)
            return
        self.variables[name] = old + value

    def _word(self, raw: str, line: int, *, ends: bool = False) -> None:
        text = self.filled(_unquoted(raw))
        parts = text.split() if text.startswith("--") else [text]
        for part in parts:
            known = "$" not in part and "`" not in part
            self.words.append(Word(part, line, known, self.conditional))
        if ends:
            self._end()

    def _end(self) -> None:
        if self.words:
            last = self.words[-1]
            self.words[-1] = Word(last.text, last.line, last.known, last.conditional, ends=True)

    def filled(self, text: str) -> str:
        """Substitute variables and arithmetic in the text, as far as their values are known."""
        text = _VARIABLE.sub(self._value, text)
        text = _ARITHMETIC.sub(lambda match: _arithmetic(self._bare(match.group(1)), match.group(0)), text)
        return text[: MAX_VALUE + 1]

    def _value(self, match: re.Match[str]) -> str:
        plain, braced, default = match.groups()
        found = self.variables.get(plain or braced)
        return (
            found if found else default if default is not None else found if found == "" else match.group(0)
        )

    def _bare(self, text: str) -> str:
        """In arithmetic a name needs no ``$``."""
        return re.sub(r"[A-Za-z_]\w*", lambda match: self.variables.get(match.group(0), match.group(0)), text)


def read_script(text: str) -> Script:
    """Return the words and variables of a script. Raises InputError if values grow without end."""
    reader = _Reader({})
    for raw in _commands(text):
        reader.command(raw)
    return Script(tuple(reader.words), reader.variables, reader.unsure)


def _commands(text: str) -> Iterator[list[tuple[str, int]]]:
    """Raw words (quotes kept) of every command with their lines; an array's words come as one command."""
    raw: list[tuple[str, int]] = []
    for word, line in _raw_words(text):
        if word == "":
            if raw:
                yield raw
            raw = []
        else:
            raw.append((word, line))
    if raw:
        yield raw


_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\f\v]|\\\r?\n)+)
      | (?P<comment>(?<![^\s;|&()])\#[^\n]*)
      | (?P<stop>[\n;|&<>]+)
      | (?P<array>(?<==)\()
      | (?P<paren>[()])
      | (?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\$\(\((?:[^()]|\([^()]*\))*\)\)|\$\((?:[^()]|\([^()]*\))*\)|\$\{[^{}]*\}
          |`[^`]*`|\\.|[^\s'"`;|&<>()\\$]|\$|['"`\\])+)""",
    re.VERBOSE | re.DOTALL,
)


def _raw_words(text: str) -> Iterator[tuple[str, int]]:
    """Raw words with their lines; ``""`` ends a command. In an array a new line is only space."""
    line, inside = 1, False
    for match in _TOKEN.finditer(text):
        kind, found = match.lastgroup, match.group()
        if kind == "array":
            inside = True
        elif kind == "paren" and found == ")" and inside:
            inside = False
            yield "", line
        elif kind == "word":
            yield found, line
        elif kind in ("stop", "paren") and not (inside and not found.strip()):
            yield "", line
            if found.strip() in _CONDITIONS:
                yield found.strip(), line
                yield "", line
        line += found.count("\n")


def _unquoted(raw: str) -> str:
    """Return a raw word without its quotes; variables in single quotes are filled in too, since nothing runs here."""
    text = re.sub(r"\\\r?\n", " ", raw)
    return re.sub(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", _plain, text, flags=re.DOTALL)


def _plain(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group is not None), "")


def _arithmetic(text: str, whole: str) -> str:
    """Return the value of whole-number arithmetic, or ``whole`` if it is something else."""
    try:
        value = _evaluated(ast.parse(text.strip()[:200], mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return whole
    return str(value)


def _evaluated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < MAX_NUMBER:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        value = _OPERATORS[type(node.op)](_evaluated(node.left), _evaluated(node.right))
        if abs(value) < MAX_NUMBER:
            return int(value)
    raise ValueError
