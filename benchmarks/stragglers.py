"""Combine gradients without late replicas and in spite of wrong ones: identities, proofs, attacks, slow ranks.

    python benchmarks/stragglers.py                  prints the page (`make stragglers`)
    python benchmarks/stragglers.py --write          also writes benchmarks/stragglers.md
    python benchmarks/stragglers.py --only TEXT …    makes the sections whose titles have the text; others stay

Every part that is done is kept in ``.cache/stragglers``, so that a second call resumes; ``--again`` forgets them. Exits
with 1 where a section misses what it must show.
"""

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from types import MappingProxyType

import torch

from meshwright import __version__

HERE = Path(__file__).parent
PAGE = HERE / "stragglers.md"
for folder in (
    "../benchmarks/stragglers",
    "../benchmarks/recover",
    ".",
    "runtime",
    "runtime/plan_sets",
    "simulate/churn",
    "simulate/churn/paths",
):
    sys.path.append(str(HERE.parent / "tests" / folder))

from attacks import attacks  # noqa: E402
from backup_workers import backup_workers  # noqa: E402
from proofs import identities, proofs  # noqa: E402
from sequential_codes import sequential_codes  # noqa: E402
from skip_paths import skip_paths  # noqa: E402
from slow_rank import slow_rank  # noqa: E402
from stragglers_kept import KEPT  # noqa: E402
from swarm_churn import swarm_churn  # noqa: E402

SECTIONS: Mapping[str, Callable[[], tuple[str, bool]]] = MappingProxyType(
    {
        "Identities and codes": identities,
        "Plans that are proven": proofs,
        "Attacks": attacks,
        "A slow rank": slow_rank,
        "Dynamic backup workers": backup_workers,
        "Sequential gradient codes": sequential_codes,
        "Routing around lost peers": swarm_churn,
        "Paths that skip stages": skip_paths,
    }
)
"""Each section's title, and what makes its text and says whether it shows what it must."""
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of a page with their dates."""
    _, *parts = HEADING.split(page)
    return {title: text.strip() for title, text in zip(parts[::2], parts[1::2], strict=True)}


def page_of(sections: Mapping[str, str]) -> str:
    """Return the page."""
    texts = [f"## {title}\n\n{sections[title]}\n" for title in SECTIONS if title in sections]
    head = (
        "# Wrong and late replicas\n\n"
        "Made by `python benchmarks/stragglers.py --write` (`make stragglers`), section by section.\n"
    )
    return "\n".join([head, *texts])


def main() -> None:
    """Make what is not kept and print the page."""
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    if "--again" in arguments:
        shutil.rmtree(KEPT, ignore_errors=True)
    asked = arguments[arguments.index("--only") + 1 :] if "--only" in arguments else [""]
    sections, good = sections_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}, True
    for title, make in SECTIONS.items():
        if any(text in title for text in asked if not text.startswith("--")):
            text, shown = make()
            sections[title] = f"Version {__version__}, {date.today()}.\n\n{text}"
            good = good and shown
    text = page_of(sections)
    print(text)
    if "--write" in arguments:
        PAGE.write_text(text, encoding="utf-8")
    sys.exit(not good)


if __name__ == "__main__":
    main()
