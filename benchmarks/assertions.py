"""Hold our answers against the assertions in the frameworks' argument checks.

    python benchmarks/assertions.py TARGET=FOLDER [TARGET=FOLDER ...] [--write]

FOLDER is an environment that has the target (``scripts/parsers.sh`` makes them), or a folder with its unpacked wheel.
Exits with 1 where an assertion has no answer, or an answer no assertion, and names them. ``--write`` adds the new
assertions to ``benchmarks/assertion_table/TARGET.csv`` without an answer and takes out those that are gone;
``docs/framework-assertions.md`` is made from these tables.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from assertion_table.answers import differences, merged, read_answers, write_answers
from assertion_table.extraction import read_assertions


def main(arguments: Sequence[str]) -> int:
    """Compare every named target and return the exit code."""
    folders = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    wrong = 0
    for target, folder in folders.items():
        found, rows = read_assertions(Path(folder), target), read_answers(target)
        lines = differences(found, rows)
        wrong += len(lines)
        print(f"{target}: {len(found)} assertions, {len(lines)} differences", *lines, sep="\n  ")
        if "--write" in arguments:
            write_answers(target, merged(found, rows))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
