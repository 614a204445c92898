"""The section of ``benchmarks/check.md`` on the frameworks' assertions: each pair of configurations, checked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assertion_table.pairs import Pair, checked, pairs
from meshwright.errors import Problem


@dataclass(frozen=True, slots=True)
class CheckedPair:
    """A pair, the error that names the broken assertion, and the errors of the other configuration."""

    pair: Pair
    named: Problem | None
    alarms: tuple[Problem, ...]


def checked_pairs() -> list[CheckedPair]:
    """Return all pairs, each configuration checked."""
    found = []
    for pair in pairs():
        alarms = (problem for problem in checked(pair, pair.holding) if problem.severity == "error")
        found.append(CheckedPair(pair, pair.named(checked(pair, pair.breaking)), tuple(alarms)))
    return found


def failures(found: Iterable[CheckedPair]) -> int:
    """Return the pairs whose assertion is not named, or whose other configuration is refused."""
    return sum(one.named is None or bool(one.alarms) for one in found)


def section(found: Sequence[CheckedPair]) -> str:
    """Return the section with its table."""
    named = sum(one.named is not None for one in found)
    alarms = sum(bool(one.alarms) for one in found)
    return f"""## Assertions of the frameworks

Every assertion of the frameworks' argument checks that `check` answers, with a configuration that breaks it and one
that does not: changes of the configurations in [bases.yaml](assertion_table/bases.yaml); `no:` takes an option out.
All assertions, those without a rule too, are in [docs/framework-assertions.md](../docs/framework-assertions.md).

Assertions named: {named} of {len(found)} (all).
Configurations that keep to the assertion and are refused: {alarms} of {len(found)} (none).

| target | assertion | base | breaks it | does not | said |
| --- | --- | --- | --- | --- | --- |
{"".join(_row(one) for one in found)}"""


def _row(one: CheckedPair) -> str:
    row = one.pair.row
    where = f" where {_code(row.where)}" if row.where else ""
    said = f"`{one.named.field}`: {one.named.rule}" if one.named else "**nothing**"
    alarm = f" **refused: {one.alarms[0].rule}**" if one.alarms else ""
    cells = (
        one.pair.target,
        _code(row.requires) + where,
        row.base,
        _code(row.breaks),
        _code(row.holds) + alarm,
        said,
    )
    return f"| {' | '.join(cell.replace('|', '¦') for cell in cells)} |\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else "the base"
