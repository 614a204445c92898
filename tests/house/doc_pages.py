"""Pages of the documentation and the blocks of code in them."""

import re

from source_tree import ROOT

DOCS = ROOT / "docs"


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(name, language):
    """The fenced blocks of one language on a page, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), flags=re.MULTILINE | re.DOTALL)


def pages():
    """Every page and the README, by name."""
    found = {str(path.relative_to(DOCS)): path for path in sorted(DOCS.rglob("*.md"))}
    return {**found, "README.md": ROOT / "README.md"}
