"""Entries of ``synchronise`` as text of a plan file, on one line, without defaults."""

from collections.abc import Iterable
from typing import Any

from meshwright.errors import written
from meshwright.plans.files.strict_types import Strict
from meshwright.plans.synchronisation.synchronisation import Synchronisation

LOSS_NOT_PREDICTED = "what less communication does to the loss is not predicted"
LOSS_REMARK = f"synchronise: {LOSS_NOT_PREDICTED}; compare the losses of a short run."


def entry_text(entry: Synchronisation) -> str:
    """Return an entry, as ``{state: parameter, over: dp_replicate, every: 16}``."""
    return written(file_data(entry))


def file_data(part: Strict) -> dict[str, Any]:
    """Return an entry or a part of it as a file that leaves defaults out has it."""
    return part.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)


def entries_text(entries: Iterable[Synchronisation]) -> str:
    """Return entries behind each other; without any, ``exact in every step``."""
    return ", ".join(map(entry_text, entries)) or "exact in every step"
