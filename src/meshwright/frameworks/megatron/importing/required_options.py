"""Hold Megatron's options against the requirements between them.

Source: ``megatron-core-0.19.2-requirements.csv``, from the assertions of megatron-core 0.19.2 (``validate_args`` and the
``__post_init__`` of its configurations).
"""

from collections.abc import Iterator, Mapping, Sequence

from meshwright.errors import Problem
from meshwright.frameworks.importing.command_line import CommandLine
from meshwright.frameworks.importing.imported_file import Fact, number_in
from meshwright.frameworks.importing.option_requirements import (
    UNKNOWN,
    GivenValues,
    broken_requirements,
    read_defaults,
    read_requirements,
)

PACKAGE, RELEASE = "meshwright.frameworks.megatron", "megatron-core-0.19.2"


def requirement_problems(line: CommandLine, facts: Mapping[str, Fact]) -> Iterator[Problem]:
    """Yield the options that lack another one, or that exclude it."""

    def words(name: str) -> Sequence[str] | None:
        given = line.options.get(name)
        if given is None:
            return None
        return given.values if given.known else UNKNOWN

    given = GivenValues(words, _numbers(facts), read_defaults(PACKAGE, RELEASE))
    for option, rule, suggestion in broken_requirements(read_requirements(PACKAGE, RELEASE), given):
        value = " ".join(line.options[option].values) or "on"
        yield Problem(option, value, rule, suggestion)


def _numbers(facts: Mapping[str, Fact]) -> dict[str, int]:
    numbers = {f"@{axis}": number_in(facts, f"layout.{axis}") for axis in ("pp", "tp", "cp", "ep")}
    return numbers | {"@virtual": _virtual_stages(facts, numbers["@pp"])}


def _virtual_stages(facts: Mapping[str, Fact], pp: int) -> int:
    """Return the stages of a pipeline rank, by whichever option says them."""
    stages, each = facts.get("stages"), number_in(facts, "layers_per_stage", 0)
    if stages:
        return max(1, len(stages.value) // pp)
    layers = number_in(facts, "model.layers", 0)
    return layers // (pp * each) if each and layers else number_in(facts, "pipeline.virtual_stages")
