"""Find the anchor that stands for the model of a plan with islands: for evaluation and for exported weights. Pure."""

from collections.abc import Collection, Sequence

from meshwright.plans.synchronisation.synchronisation import Synchronisation, exchanged_between_steps
from meshwright.program.program import Program


def exported_entry(program: Program) -> int | None:
    """Return the number of the entry whose anchor stands for the model; None without islands."""
    return anchored_entry(program.synchronise, program.loose)


def anchored_entry(synchronise: Sequence[Synchronisation], loose: Collection[str]) -> int | None:
    """Return the number of the entry whose anchor stands for the model; None if no axis is ``loose``.

    It is the last to act of those that average parameters, which has the longest period: what it averages, entries of
    shorter periods have averaged before.
    """
    entries = exchanged_between_steps(synchronise, loose)
    found = [entry for entry in entries if synchronise[entry].state == "parameter"]
    return found[-1] if found else None
