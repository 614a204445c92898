"""Rename options in problems and facts from torchtitan's command line to the keys of its job file."""

import re
from collections.abc import Mapping
from dataclasses import replace

from meshwright.errors import Problem
from meshwright.frameworks.importing.imported_file import ImportedFile

_OPTION = re.compile(r"--[a-z_]+(?:\.[a-z_0-9]+)+")


def in_file_words(file: ImportedFile, labels: Mapping[str, str]) -> ImportedFile:
    """Return the file with its own names of options; ``labels`` has them by today's names."""

    def own(text: str) -> str:
        return _OPTION.sub(lambda found: labels.get(found[0], found[0].removeprefix("--")), text)

    def renamed(problem: Problem) -> Problem:
        return replace(
            problem,
            field=own(problem.field),
            rule=own(problem.rule),
            suggestion=own(problem.suggestion),
        )

    return replace(
        file,
        facts={path: fact._replace(words=own(fact.words)) for path, fact in file.facts.items()},
        unread=tuple(replace(option, key=own(option.key)) for option in file.unread),
        problems=tuple(map(renamed, file.problems)),
    )
