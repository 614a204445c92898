"""Find the anchor that stands for the model of a plan with islands: for evaluation and for exported weights. Pure."""

from meshwright.plans.synchronisation.synchronisation import exchanged_between_steps
from meshwright.program.program import Program


def exported_entry(program: Program) -> int | None:
    """Return the number of the entry whose anchor stands for the model; None without islands.

    It is the last to act of those that average parameters, which has the longest period: what it averages, entries of
    shorter periods have averaged before.
    """
    entries = exchanged_between_steps(program.synchronise, program.loose)
    found = [entry for entry in entries if program.synchronise[entry].state == "parameter"]
    return found[-1] if found else None
