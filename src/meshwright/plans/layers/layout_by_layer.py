"""Find the layout of each block of a model in a plan's rules, and format layouts as text."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from meshwright.plans.forms.long import Layout, LongPlan
from meshwright.plans.layers.layer_assignment import layer_rules
from meshwright.plans.layers.plan_of_layout import plan_of_layout


def layouts_by_block(plan: LongPlan, layers: int) -> list[str]:
    """Return the names of the layouts of the embedding, of each of ``layers`` layers, and of the head."""
    rules, default = layer_rules(plan, layers), next(iter(plan.layouts))
    every = (rules.embed, *rules.layers, rules.head)
    return [default if rule is None else rule.layout for rule in every]


def format_layout(plan: LongPlan, name: str) -> str:
    """Return a layout's degrees above 1 and its sharding: ``dp_shard 4 tp 2 ep 4 zero1``."""
    layout = plan.layouts[name]
    degrees = layout.grid.model_dump()
    if layout.experts is not None:
        degrees |= layout.experts.model_dump(include={"ep", "etp"})
    axes = " ".join(f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1) or "one device"
    sharding = plan_of_layout(plan, name).sharding
    return axes + (f" {sharding}" if sharding != "none" else "") + format_batch_share(layout)


def format_batch_share(layout: Layout) -> str:
    """Return the range of a layout's shares of the batch: `` of 1 to 4 sequences``; nothing where it has none."""
    share = layout.batch_share
    return f" of {min(share)} to {max(share)} sequences" if share else ""


def format_layouts(plan: LongPlan) -> str:
    """Return the layouts of a plan in a line: ``a: dp_shard 4 tp 2 zero1, b: dp_shard 8, pp 2 1f1b``."""
    texts, ranks = [f"{name}: {format_layout(plan, name)}" for name in plan.layouts], plan.pipeline.ranks
    return ", ".join([*texts, *([f"pp {ranks} {plan.pipeline.schedule.choice}"] if ranks > 1 else [])])


def format_layout_ranges(plan: LongPlan) -> str:
    """Return the layouts of ranges in a line: ``dp_shard 4 tp 2 zero1 in embed 0..19, dp_shard 8 in 20..31 head``."""
    places = _places_of_layouts(plan).items()
    return ", ".join(f"{format_layout(plan, name)} in {' '.join(keys)}" for name, keys in places)


def format_named_layouts(plan: LongPlan) -> str:
    """Return the layouts by name: ``2 layouts: a dp_shard 4 tp 2 (embed, layers 0..19), b dp_shard 8 (head)``."""
    texts = []
    for name, keys in _places_of_layouts(plan).items():
        layers = " ".join(key for key in keys if key not in ("embed", "head"))
        where = (
            ["embed"] * ("embed" in keys) + [f"layers {layers}"] * bool(layers) + ["head"] * ("head" in keys)
        )
        texts.append(f"{name} {format_layout(plan, name)} ({', '.join(where)})")
    return f"{len(texts)} layouts: {', '.join(texts)}"


def layers_of_rules(plan: LongPlan) -> int:
    """Return the number of layers that a plan's rules reach to, which is the model's for a legal plan."""
    ends = [key.rpartition("..")[2] for key in plan.layers if key not in ("embed", "head")]
    return 1 + max(map(int, ends))


def block_ranges(of_blocks: Sequence[Any]) -> Iterator[tuple[str, range]]:
    """Yield the runs of equal layers, as ``embed``, ``0..19``, ``20`` and ``head``, with their places.

    ``of_blocks`` has a value of the embedding, of each layer, and of the head, at places 0, 1 and so on.
    """
    last = len(of_blocks) - 1
    yield "embed", range(1)
    for _, run in groupby(range(1, last), key=of_blocks.__getitem__):
        first, *rest = run
        end = rest[-1] if rest else first
        yield (f"{first - 1}..{end - 1}" if rest else str(first - 1)), range(first, end + 1)
    yield "head", range(last, last + 1)


def _places_of_layouts(plan: LongPlan) -> dict[str, list[str]]:
    names = layouts_by_block(plan, layers_of_rules(plan))
    places: dict[str, list[str]] = {}
    for key, run in block_ranges(names):
        places.setdefault(names[run[0]], []).append(key)
    return places
