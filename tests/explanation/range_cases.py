"""Plans whose layers differ, for the question of ``explained_cases``."""

from functools import cache

from explained_cases import plan, resolved

from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LayerRule, Layout
from meshwright.plans.layers.recompute_by_layer import with_layer_recomputes
from meshwright.plans.resolve import Resolved, resolve

LAYERS = 32


def recomputing(again, **changes) -> Resolved:
    """A plan of one layout in which layer i recomputes ``again[i]``."""
    return resolve(with_layer_recomputes(resolved(stack="meshwright", **changes).long, again))


@cache
def of_two_layouts() -> Resolved:
    """Layers 0 to 19 and the embedding with tp, the others and the head without."""
    arch = resolved().setting.model.architecture
    wide = expand(plan(stack="meshwright", layout={"pp": 2, "dp_shard": 2, "tp": 2}), arch)
    narrow = expand(plan(stack="meshwright", layout={"pp": 2, "dp_shard": 4}, sharding="zero3"), arch)
    layouts = {
        name: Layout.model_validate({**one.layouts["main"].model_dump(), "states": one.states.model_dump()})
        for name, one in (("wide", wide), ("narrow", narrow))
    }
    layers = {
        "embed": LayerRule(layout="wide"),
        "0..19": LayerRule(layout="wide"),
        "20..31": LayerRule(layout="narrow", recompute="full"),
        "head": LayerRule(layout="narrow"),
    }
    return resolve(wide.model_copy(update={"layouts": layouts, "layers": layers}))
