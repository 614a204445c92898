"""Names of the experts' matrices in a family's checkpoint; each is one stacked tensor of ours."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.runtime.weights.stored_parts import Part

EXPERTS = "mlp.experts."
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertNames:
    """Names of stored expert tensors; ``modules`` maps our projections to stored modules of a layer.

    In a name ``{}`` is the number of an expert, which then has a tensor of its own; without it the experts are stacked
    along dim 0. Projections with the same stored module are interleaved in it, row by row. ``suffixes`` follow a
    module's name. ``transposed``: an expert's matrix is (inputs, outputs).
    """

    modules: Mapping[str, str]
    suffixes: Mapping[str, str] = field(default_factory=lambda: {"weight": ".weight", "bias": ".bias"})
    transposed: bool = False

    def parts(self, layer: str, inner: str, kind: str, shape: tuple[int, ...]) -> tuple[Part, ...]:
        """Return one part for each expert; ``inner`` is our module, ``layer`` the stored prefix."""
        module = self.modules[inner.removeprefix(EXPERTS)]
        sharing = [name for name, other in self.modules.items() if other == module]
        stored = f"{layer}.{module}{self.suffixes[kind]}"
        count, *rest = shape
        return tuple(
            Part(
                name=stored.format(expert),
                shape=tuple(rest),
                rows=len(sharing) * rest[0],
                first=sharing.index(inner.removeprefix(EXPERTS)),
                runs=rest[0] if len(sharing) > 1 else 1,
                transposed=self.transposed and kind == "weight",
                stack=None if "{}" in stored else (expert, count),
            )
            for expert in range(count)
        )


ONE_BY_ONE = ExpertNames(modules={name: f"{EXPERTS}{{}}.{name}" for name in PROJECTIONS})
MIXTRAL = ExpertNames(
    modules={
        name: f"block_sparse_moe.experts.{{}}.{stored}"
        for name, stored in zip(PROJECTIONS, ("w1", "w3", "w2"), strict=True)
    }
)
GPT_OSS = ExpertNames(
    modules={
        "gate_proj": "mlp.experts.gate_up_proj",
        "up_proj": "mlp.experts.gate_up_proj",
        "down_proj": "mlp.experts.down_proj",
    },
    suffixes={"weight": "", "bias": "_bias"},
    transposed=True,
)
