"""Fragments: the layers that one exchange of an entry carries.

Of ``count`` fragments, layer l of L belongs to fragment l mod count (``strided``) or ⌊l·count/L⌋ (``sequential``: runs
whose lengths differ by one at most). The embedding, a table that is tied to it, and an encoder belong to the first
fragment; the final norm, the head, and layers of multi-token prediction to the last.

Source: Streaming DiLoCo, arXiv 2501.18512, section 2 (both patterns); the places of embedding and head are assumed.
"""

from collections.abc import Callable, Mapping

from meshwright.model.graph import BlockKind
from meshwright.plans.synchronisation.synchronisation import FRAGMENT_PATTERNS, Fragments


def fragment_of_layer(layer: int, rule: Fragments, layers: int) -> int:
    """Return the fragment of a decoder layer; ``layers`` and beyond are those of multi-token prediction."""
    count = int(rule.count)
    return count - 1 if layer >= layers else PATTERNS[rule.pattern](layer, count, layers)


def fragment_of_block(
    kind: BlockKind, layer: int, rule: Fragments, layers: int, *, tied: bool = False
) -> int:
    """Return the fragment of a parameter by its block; ``tied``: it is the head's copy of the embedding.

    ``layer`` counts only where the block is a layer.
    """
    if kind == "layer":
        return fragment_of_layer(layer, rule, layers)
    return int(rule.count) - 1 if kind == "head" and not tied else 0


def _strided(layer: int, count: int, layers: int) -> int:
    return layer % count


def _sequential(layer: int, count: int, layers: int) -> int:
    return layer * count // layers


PATTERNS: Mapping[str, Callable[[int, int, int], int]] = dict(
    zip(FRAGMENT_PATTERNS, (_strided, _sequential), strict=True)
)
"""Layer, count of fragments and count of layers to a fragment."""
