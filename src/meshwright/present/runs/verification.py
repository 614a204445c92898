"""Print a proof: each small plan with its errors, what was covered and what not, and the conclusion."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape

from meshwright.errors import heading
from meshwright.present.console import console, plain_table, printable

MOST_SHOWN = 12


def render_verified(data: dict[str, Any]) -> None:
    """Print a proof in its JSON form."""
    out = console()
    for remark in data["remarks"]:
        out.print(
            escape(f"{remark['severity']}: {heading(remark['field'], remark['value'])}: {remark['rule']}")
        )
    table = plain_table("small plan", "ranks", "loss", "gradients", "norm", "parameters", "")
    for number, plan in enumerate(data["plans"], start=1):
        table.add_row(str(number), str(plan["ranks"]), *_errors(plan), _verdict(plan))
        out.print(escape(f"{number}: {plan['plan']}"))
    out.print(table)
    for number, plan in enumerate(data["plans"], start=1):
        for line in _differences(plan):
            out.print(escape(f"Plan {number}: {line}"))
    out.print(
        "Largest relative error of any step; gradients before clipping, parameters after the last step."
    )
    for number, plan in enumerate(data["plans"], start=1):
        if plan["states"] is not None:
            out.print(escape(f"Plan {number} with rounded states: {_of_states(plan['states'])}"))
    for number, plan in enumerate(data["plans"], start=1):
        for row in plan["synchronise"]:
            out.print(escape(f"Plan {number}: {_exchanged(row)}"))
    for name, text in data["features"].items():
        out.print(escape(f"  {name}: {text}"))
    out.print(escape("\n".join(_combinations(data))))
    out.print(escape(_conclusion(data)))
    out.print(escape(data["proves"]))


def render_compared(data: dict[str, Any]) -> None:
    """Print a comparison of two plans' models in its JSON form."""
    apart = data["max_relative_error"]
    largest = "not finite" if apart is None else f"{apart:.1e} ({data['parameter']})"
    verdict = "equal" if data["equal"] else "NOT EQUAL"
    out = console()
    out.print(
        escape(f"{verdict} to {data['against']} after {data['steps']} steps on equal data, without clipping")
    )
    out.print(
        escape(
            f"largest relative difference of parameters: {largest}; equal means {data['bound']:.0e} at most"
        )
    )


def _errors(plan: Mapping[str, Any]) -> Iterator[str]:
    for key in ("loss_error", "gradient_error", "norm_error", "parameter_error"):
        failed = plan["failure"] or plan[key] is None
        yield "–" if failed else f"{plan[key]:.1e}"


def _of_states(states: Mapping[str, Any]) -> str:
    """Describe the comparison of states in a plan's own types."""
    if states["failure"]:
        return printable(states["failure"])
    apart, verdict = states["state_error_in_last_places"], "equal" if states["equal"] else "NOT EQUAL"
    of = f" ({states['state']})" if states["state"] else ""
    places = "not finite" if apart is None else f"{apart:.2g} units in the last place at most"
    return f"{verdict}, {places}{of}, gradients before rounding {states['gradient_error'] or 0:.1e}"


def _exchanged(row: Mapping[str, Any]) -> str:
    """Describe the exchanges of an entry of ``synchronise``."""
    apart = row["difference_from_exact"]
    differs = "" if apart is None else f"; parameters differ from exact data parallelism by {apart:.1e}"
    return (
        f"{row['state']} over {row['over']}, {row['exchanges']} exchanges: {row['logged_bytes']:,} bytes of all "
        f"ranks, {row['predicted_bytes']:,} predicted{differs}"
    )


def _verdict(plan: Mapping[str, Any]) -> str:
    if not plan["equal"]:
        return "NOT EQUAL"
    return "equal, with doubt" if plan["doubtful"] else "equal"


def _differences(plan: Mapping[str, Any]) -> Iterator[str]:
    if plan["failure"]:
        yield printable(plan["failure"])
    elif not plan["equal"]:
        yield f"the largest error is that of {plan['parameter']}"
    elif plan["doubtful"]:
        yield f"{plan['parameter']} differs by {plan['max_relative_error']:.1e}, more than rounding explains"
    yield from (f"exchanges differ: {difference}" for difference in plan["differing_exchanges"])
    if plan["differing_copies"]:
        yield f"copies on several ranks differ: {', '.join(plan['differing_copies'])}"


def _combinations(data: Mapping[str, Any]) -> Iterator[str]:
    covered, missing = data["combinations_covered"], data["combinations_not_covered"]
    yield f"Combinations of features covered: {len(covered)} of {len(covered) + len(missing)}"
    yield from (f"  not covered: {_joined(one)}" for one in missing[:MOST_SHOWN])
    if len(missing) > MOST_SHOWN:
        yield f"  and {len(missing) - MOST_SHOWN} more; more --ranks cover more"


def _joined(names: Sequence[str]) -> str:
    return " + ".join(names)


def _conclusion(data: Mapping[str, Any]) -> str:
    if data["equal"]:
        return f"equal: {data['max_relative_error']:.1e} at most, where {data['bound']:.0e} is the bound"
    return "NOT EQUAL"
