"""List the models, devices and stacks that come with Meshwright."""

from collections.abc import Iterable, Mapping
from typing import Any

from meshwright.cluster.catalog import device, device_ids, usual_node
from meshwright.cluster.catalog_prices import usual_price
from meshwright.errors import InfeasibleError, near_names
from meshwright.frameworks.export_targets import STACK_OF_TARGET
from meshwright.model.load import load_model
from meshwright.model.zoo_names import zoo_names, zoo_repositories
from meshwright.stack.load import load_stack, stack_names

Rows = list[dict[str, Any]]


def list_models(search: str | None = None) -> Rows:
    """Return a row for each model whose name, family or hub repository contains the text, letter case aside.

    ``parameters_active``: those that work on one token. ``context``: the most positions of a sequence. Raises
    InfeasibleError with near names where there is none.
    """
    others: dict[str, list[str]] = {}
    for name, repository in zoo_repositories():
        others.setdefault(name, []).append(repository)
    graphs = {name: load_model(name) for name in zoo_names()}
    found = _found(
        {n: (graph.architecture.family, *others.get(n, ())) for n, graph in graphs.items()}, search
    )
    if not found:
        raise _nothing("models", search, graphs)
    return [
        {
            "name": name,
            "family": graph.architecture.family,
            "parameters": graph.parameters,
            "parameters_active": graph.parameters_active,
            "layers": len(graph.layer_blocks),
            "context": graph.architecture.max_positions,
            "source": graph.source,
        }
        for name, graph in graphs.items()
        if name in found
    ]


def list_devices(search: str | None = None) -> Rows:
    """Return a row for each device whose id or vendor contains the text, letter case aside.

    ``memory_bytes`` is what a framework can allocate, ``peak_flops`` in FLOP/s by precision, dense; ``usd_per_hour``
    the median of on-demand offers for one device, None where none is known. Raises InfeasibleError with near ids
    where there is none.
    """
    known = {name: device(name) for name in device_ids()}
    found = _found({name: (kind.vendor,) for name, kind in known.items()}, search)
    if not found:
        raise _nothing("devices", search, known)
    rows = []
    for name in found:
        kind, price = known[name], usual_price(name)
        rows.append(
            {
                "id": name,
                "memory_bytes": kind.memory_bytes,
                "peak_flops": dict(kind.peak_flops),
                "memory_bytes_per_s": kind.memory_bytes_per_s,
                "usd_per_hour": price and price.value,
                "usual_node": usual_node(name).name,
            }
        )
    return rows


def list_stacks(search: str | None = None) -> Rows:
    """Return a row for each stack, at its newest release, whose name or target contains the text, letter case aside.

    ``exports_to`` lists the targets of ``export`` whose files run on this stack; other plans may be exported to them
    too, which then says what changes. Raises InfeasibleError with near names where there is none.
    """
    targets = {
        name: [target for target, stack in STACK_OF_TARGET.items() if stack == name] for name in stack_names()
    }
    found = _found(targets, search)
    if not found:
        raise _nothing("stacks", search, targets)
    return [
        {"name": name, "release": load_stack(name).release, "exports_to": targets[name]} for name in found
    ]


def _found(known: Mapping[str, Iterable[str]], search: str | None) -> tuple[str, ...]:
    """Return the names that contain the text, or for which another text does."""
    part = (search or "").strip().casefold()
    return tuple(
        name for name, others in known.items() if any(part in text.casefold() for text in (name, *others))
    )


def _nothing(kind: str, search: str | None, known: Iterable[str]) -> InfeasibleError:
    """Return the error with the names that are most like the text, or that have a part most like it."""
    text, names = (search or "").strip(), tuple(known)
    owners = {part: name for name in reversed(names) for part in name.split("-")} | {n: n for n in names}
    near = dict.fromkeys(owners[like] for like in near_names(text, owners))
    hint = f"did you mean {' or '.join(near)}?" if near else f"`meshwright {kind}` lists all"
    error = InfeasibleError(f"None of the {kind} contains '{text}'.", suggestion=hint)
    error.details = {kind: []}
    return error
