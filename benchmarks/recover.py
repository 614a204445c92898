"""Continue runs from checkpoints and after faults, and measure what that takes.

    python benchmarks/recover.py                  prints the page (`make recover`)
    python benchmarks/recover.py --write          also writes benchmarks/recover.md
    python benchmarks/recover.py --only TEXT …    measures the sections whose titles have the text; others stay

Every part that is done is kept in ``.cache/recover``, so that a second call resumes; ``--again`` forgets them. Exits
with 1 where a section misses what it must show.
"""

import sys
from pathlib import Path
from types import MappingProxyType

from page_sections import Sections, write_sections

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

SECTIONS: Sections = MappingProxyType(
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
HEAD = """# Recovery

Made by `python benchmarks/recover.py --write` (`make recover`), section by section.
"""

if __name__ == "__main__":
    write_sections(PAGE, HEAD, SECTIONS, KEPT)
