"""Refuse plans that cut the sequences of Mamba-2 layers.

A state, and the filter before it, pass from position to position; neither is exchanged over cp, nor begun again with a
document.
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.workload.workload import Workload

NO_CONTEXT = "Mamba-2 layers pass their state along whole sequences"


def state_space_context(case: RuleInput) -> Iterator[Problem]:
    """Refuse cp > 1: the states of a sequence's pieces are not exchanged."""
    cp = case.grid.cp
    if case.arch.state_space is not None and cp > 1:
        yield Problem("layout.cp", cp, f"{NO_CONTEXT}: cp = {cp} must be 1", "cp: 1")


def state_space_documents(case: RuleInput) -> Iterator[Problem]:
    """Refuse packed documents: a state goes on over their borders."""
    if case.workload is not None:
        yield from documents_of_state_spaces(case.arch, case.workload)


def documents_of_state_spaces(arch: Architecture, workload: Workload) -> Iterator[Problem]:
    """Refuse packed documents of a model, whatever the plan."""
    documents = workload.documents
    if arch.state_space is not None and documents is not None:
        rule = "states and filters of Mamba-2 do not begin again with a document"
        yield Problem("workload.documents", str(documents), rule, "leave documents out")


STATE_SPACE_RULES: tuple[Rule, ...] = (state_space_context, state_space_documents)
