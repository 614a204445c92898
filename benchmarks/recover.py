"""Continue runs from checkpoints and after faults, and measure what that takes.

    python benchmarks/recover.py                  prints the page (`make recover`)
    python benchmarks/recover.py --write          also writes benchmarks/recover.md
    python benchmarks/recover.py --only TEXT …    measures the sections whose titles have the text; others stay

Every part that is done is kept in ``.cache/recover``, so that a second call resumes; ``--again`` forgets them. Exits
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
PAGE = HERE / "recover.md"
for folder in (
    "../benchmarks/recover",
    ".",
    "runtime",
    "runtime/checkpoint",
    "runtime/plan_sets",
    "runtime/recovery/members",
    "economy",
):
    sys.path.append(str(HERE.parent / "tests" / folder))

from background_saves import saves_in_background  # noqa: E402
from changed_members import changed_members  # noqa: E402
from checkpoint_pauses import pauses_at_set_ups  # noqa: E402
from goodput_policies import policies_at_published_rates  # noqa: E402
from healthy_steps import watching  # noqa: E402
from injected_faults import faults_named  # noqa: E402
from kept_parts import KEPT  # noqa: E402
from large_rank import large_rank  # noqa: E402
from mutated_checkpoints import mutated_checkpoints  # noqa: E402
from plan_pairs import plan_pairs  # noqa: E402

SECTIONS: Mapping[str, Callable[[], tuple[str, bool]]] = MappingProxyType(
    {
        "Checkpoints between plans": plan_pairs,
        "A rank of a 70B model": large_rank,
        "Mutated files": mutated_checkpoints,
        "Saving in the background": saves_in_background,
        "Ranks that are lost and join": changed_members,
        "Pauses at the set-ups of DataStates-LLM": pauses_at_set_ups,
        "Injected faults": faults_named,
        "Healthy steps and the cost of watching": watching,
        "Policies of recovery at published failure rates": policies_at_published_rates,
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
        "# Recovery\n\nMade by `python benchmarks/recover.py --write` (`make recover`), section by section.\n"
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
