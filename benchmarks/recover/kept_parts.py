"""The kept results of the page of recovery."""

from functools import partial
from pathlib import Path

import page_sections

KEPT = Path(__file__).parents[2] / ".cache" / "recover"
kept = partial(page_sections.kept, folder=KEPT)
