"""Write a page of benchmarks section by section: each is made by itself, and its parts are kept between calls.

Options: ``--write`` also writes the page, ``--only TEXT …`` makes the sections whose titles have the text, ``--again``
forgets the kept parts.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

from meshwright import __version__

Sections = Mapping[str, Callable[[], tuple[str, bool]]]
"""Each section's title, and what makes its text and says whether it shows what it must."""
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def kept(name: str, make: Callable[[], Any], folder: Path) -> Any:
    """Return the result of a part, made now or by an earlier call."""
    path = folder / f"{name}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(make()), encoding="utf-8")
        print(f"done: {name}", file=sys.stderr, flush=True)
    return json.loads(path.read_text(encoding="utf-8"))


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of a page with their dates."""
    _, *parts = HEADING.split(page)
    return {title: text.strip() for title, text in zip(parts[::2], parts[1::2], strict=True)}


def write_sections(page: Path, head: str, sections: Sections, folder: Path) -> None:
    """Make the wanted sections and print the page; kept parts are in ``folder``.

    Exits with 1 where a section misses what it must show.
    """
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    if "--again" in arguments:
        shutil.rmtree(folder, ignore_errors=True)
    asked = arguments[arguments.index("--only") + 1 :] if "--only" in arguments else [""]
    texts, good = sections_of(page.read_text(encoding="utf-8")) if page.exists() else {}, True
    for title, make in sections.items():
        if any(text in title for text in asked if not text.startswith("--")):
            text, shown = make()
            texts[title] = f"Version {__version__}, {date.today()}.\n\n{text}"
            good = good and shown
    whole = "\n".join([head, *(f"## {title}\n\n{texts[title]}\n" for title in sections if title in texts)])
    print(whole)
    if "--write" in arguments:
        page.write_text(whole, encoding="utf-8")
    sys.exit(not good)
