"""The kept results of the page of wrong and late replicas."""

from functools import partial
from pathlib import Path

import page_sections

KEPT = Path(__file__).parents[2] / ".cache" / "stragglers"
kept = partial(page_sections.kept, folder=KEPT)
