"""The section on mutated files of a checkpoint."""

import sys
from collections import Counter

from kept_parts import kept
from mutated_files import mutated_files

MUTATED, AT_ONCE, SEED = 100_000, 2_500, 20261129
"""Mutated files, how many are one part, and the seed of the first part."""


def mutated_checkpoints() -> tuple[str, bool]:
    """Return the section, and whether every damaged file is refused with a message."""
    mutated, tracebacks = every_mutated_file()
    for error in tracebacks:
        print(error, file=sys.stderr)
    text = f"""A checkpoint of two ranks is read under another plan, after a bit of one of its files (shard, manifest or
its digest) was flipped, or bytes were cut off, put in, overwritten or removed: {sum(mutated.values()):,} files, seeds
from {SEED}. *Signed*: the manifest has the digests of the mutated file, so that headers and manifests are read as they
are; such a file may be accepted, with other values.

| digests | mutated files | refused with a message | accepted | tracebacks |
|---|--:|--:|--:|--:|
{mutated_rows(mutated)}"""
    return text, not tracebacks and not mutated["unsigned: accepted"]


def every_mutated_file() -> tuple[Counter[str], list[str]]:
    """Return what became of all mutated files, and the first errors that were no refusals."""
    counts, tracebacks = Counter[str](), []
    for number in range(MUTATED // AT_ONCE):
        found = kept(f"mutated files {number}", lambda number=number: mutated_files(AT_ONCE, SEED + number))
        counts.update(found["counts"])
        tracebacks += found["tracebacks"]
    return counts, tracebacks


def mutated_rows(mutated: Counter[str]) -> str:
    """A row for files with the digests of the original, and one for those with their own."""
    rows = []
    for way, name in (("unsigned", "of the original"), ("signed", "signed")):
        of = {key.partition(": ")[2]: count for key, count in mutated.items() if key.startswith(f"{way}:")}
        accepted = sum(count for key, count in of.items() if key.startswith("accepted"))
        cells = (sum(of.values()), of.get("refused", 0), accepted, of.get("traceback", 0))
        rows.append(f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return "\n".join(rows)
