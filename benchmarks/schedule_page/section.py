"""What a part of the page of schedules is made of: a text, and targets beside what was found."""

from dataclasses import dataclass
from textwrap import fill

from accuracy import table

WIDTH = 120


@dataclass(frozen=True)
class Target:
    """What we aim at and what was found, in words."""

    what: str
    target: str
    found: str
    met: bool


@dataclass(frozen=True)
class Section:
    """A part of the page in Markdown, without its heading, and the targets that it answers."""

    title: str
    text: str
    targets: tuple[Target, ...] = ()


def page_of(sections: list[Section]) -> str:
    """The targets of all sections, then the sections."""
    rows = [(t.what, t.target, t.found, "yes" if t.met else "**no**") for s in sections for t in s.targets]
    parts = ["## Targets\n\n" + table(["what", "target", "found", "met"], rows)]
    parts += [f"## {section.title}\n\n{filled(section.text)}" for section in sections]
    return "\n".join(f"{part.rstrip()}\n" for part in parts)


def filled(text: str) -> str:
    """Markdown with lines of equal width; tables and headings stay as they are."""
    blocks = text.split("\n\n")
    return "\n\n".join(block if block.lstrip().startswith(("|", "#")) else _filled(block) for block in blocks)


def _filled(block: str) -> str:
    words = " ".join(block.split())
    return fill(words, WIDTH, break_long_words=False, break_on_hyphens=False)
