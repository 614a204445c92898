"""Combine gradients without late replicas and in spite of wrong ones: identities, proofs, attacks, slow ranks.

    python benchmarks/stragglers.py                  prints the page (`make stragglers`)
    python benchmarks/stragglers.py --write          also writes benchmarks/stragglers.md
    python benchmarks/stragglers.py --only TEXT …    makes the sections whose titles have the text; others stay

Every part that is done is kept in ``.cache/stragglers``, so that a second call resumes; ``--again`` forgets them. Exits
with 1 where a section misses what it must show.
"""

import sys
from pathlib import Path
from types import MappingProxyType

from page_sections import Sections, write_sections

HERE = Path(__file__).parent
PAGE = HERE / "stragglers.md"
for folder in (
    "../benchmarks/stragglers",
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

SECTIONS: Sections = MappingProxyType(
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
HEAD = """# Wrong and late replicas

Made by `python benchmarks/stragglers.py --write` (`make stragglers`), section by section.
"""

if __name__ == "__main__":
    write_sections(PAGE, HEAD, SECTIONS, KEPT)
