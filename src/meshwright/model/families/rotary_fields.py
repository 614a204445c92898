"""Read a configuration's rotary embedding: ``rope_parameters``, or ``rope_scaling`` in older files.

Key names and defaults are those of transformers 5.23 (``modeling_rope_utils.py``). Problems stay with the ``Fields``
that are read; a rotation is returned in any case.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.rotary import Linear, Llama3, LongRope, Rotary, Scaling, Yarn

ORIGINAL = "original_max_position_embeddings"


def rope_mapping(fields: Fields) -> Fields:
    """Return the mapping that describes the rotation of all layers."""
    if fields.has("rope_parameters"):
        refuse_older_key(fields)
    rope = fields.mapping("rope_scaling" if fields.has("rope_scaling") else "rope_parameters")
    for kind in ("full_attention", "sliding_attention"):
        if rope.has(kind):
            rope.unsupported(
                kind, "present", "this family has one rotation for all layers", "one flat mapping"
            )
    return rope


def refuse_older_key(fields: Fields) -> None:
    """Refuse ``rope_scaling`` in addition to ``rope_parameters``: programs differ in which one they use."""
    if fields.has("rope_scaling"):
        rule = "rope_scaling and rope_parameters say the same thing in two places"
        fields.unsupported("rope_scaling", "present", rule, "keep rope_parameters")


def read_rotated_layers(fields: Fields, layers: int) -> list[bool]:
    """Read which layers are rotated: ``no_rope_layers`` holds 1 for one that *is*; without it, all but every fourth."""
    interval = fields.size("no_rope_layer_interval", default=4)
    rotates = fields.items("no_rope_layers", lambda n: n in (0, 1), "0 or 1 for each layer")
    if rotates is None:
        return [(layer + 1) % interval != 0 for layer in range(layers)]
    if len(rotates) < layers:
        rule = f"len(no_rope_layers) = {len(rotates)} >= num_hidden_layers = {layers}"
        fields.problem("no_rope_layers", f"{len(rotates)} entries", rule, "one entry for each layer")
        return [True] * layers
    return [bool(flag) for flag in rotates[:layers]]


def read_rotary(
    rope: Fields,
    arch: Architecture,
    *,
    theta: float | None = None,
    width: int | None = None,
    share: float = 1.0,
    interleaved: bool = False,
    other_names: Mapping[str, str] = MappingProxyType({}),
) -> Rotary:
    """Return the rotation that ``rope`` describes.

    ``theta`` is the base if ``rope`` has none and it is not the model's, ``width`` the elements of a head
    (default ``head_dim``) and ``share`` the fraction of them that is rotated; ``other_names`` are a family's own
    names of scalings.
    """
    width = arch.head_dim if width is None else width
    dim = int(width * share)
    if dim < 2 or dim % 2:
        rule = f"a head of {width} elements must have an even number of rotated ones, has {dim}"
        rope.unsupported("partial_rotary_factor", share, rule, "an even head_dim, rotated as a whole")
        dim = 2
    theta = rope.number("rope_theta", default=theta or arch.rope_theta, positive=True)
    if theta <= 1:
        rope.unsupported("rope_theta", theta, "rope_theta > 1", "10000.0")
        theta = 10000.0
    kind = rope.text("rope_type", "type", default="default")
    kind = other_names.get(kind, kind)
    if kind not in SCALINGS:
        rule = "a rotation of this type is not supported"
        rope.unsupported("rope_type", kind, rule, "supported are " + ", ".join(SCALINGS))
        kind = "default"
    scaling = SCALINGS[kind](rope, dim, arch.max_positions)
    return Rotary(theta=theta, dim=dim, interleaved=interleaved, scaling=scaling)


def _none(rope: Fields, dim: int, positions: int) -> None:
    return None


def _linear(rope: Fields, dim: int, positions: int) -> Linear:
    return Linear(factor=_needed(rope, "factor"))


def _llama3(rope: Fields, dim: int, positions: int) -> Llama3:
    low, high = _needed(rope, "low_freq_factor"), _needed(rope, "high_freq_factor")
    if high <= low and rope.sound("low_freq_factor", "high_freq_factor"):
        rule = f"high_freq_factor = {high:g} > low_freq_factor = {low:g}"
        rope.unsupported("high_freq_factor", high, rule, "e.g. 1.0 and 4.0")
    return Llama3(
        factor=_needed(rope, "factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_positions=_original(rope, positions),
    )


def _yarn(rope: Fields, dim: int, positions: int) -> Yarn:
    original = _original(rope, positions)
    return Yarn(
        factor=_factor(rope, positions, original),
        original_positions=original,
        beta_fast=rope.number("beta_fast", default=32.0, positive=True),
        beta_slow=rope.number("beta_slow", default=1.0, positive=True),
        mscale=_optional(rope, "mscale"),
        mscale_all_dim=_optional(rope, "mscale_all_dim"),
        given_attention_factor=_optional(rope, "attention_factor"),
        truncate=rope.flag("truncate", True),
    )


def _longrope(rope: Fields, dim: int, positions: int) -> LongRope:
    original = _original(rope, positions)
    return LongRope(
        short=_stretches(rope, "short_factor", dim // 2),
        long=_stretches(rope, "long_factor", dim // 2),
        factor=_factor(rope, positions, original),
        original_positions=original,
        given_attention_factor=_optional(rope, "attention_factor"),
    )


SCALINGS: dict[str, Callable[[Fields, int, int], Scaling | None]] = {
    "default": _none,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}


def _needed(rope: Fields, key: str) -> float:
    if not rope.has(key):
        rope.problem(key, None, f"{key} is missing", f'add "{key}": a number > 0')
    return rope.number(key, default=1.0, positive=True)


def _optional(rope: Fields, key: str) -> float | None:
    return rope.number(key, default=1.0) if rope.has(key) else None


def _original(rope: Fields, positions: int) -> int:
    """Read the training length before the scaling; at least 2, as its logarithm is a divisor."""
    return rope.size(ORIGINAL, default=max(2, positions), least=2)


def _factor(rope: Fields, positions: int, original: int) -> float:
    return rope.number("factor", default=positions / original, positive=True)


def _stretches(rope: Fields, key: str, pairs: int) -> tuple[float, ...]:
    """Read one factor for each pair."""
    given = rope.items(key, _is_stretch, "numbers > 0")
    if given is None or len(given) != pairs:
        found = "none" if given is None else f"{len(given)} entries"
        rope.problem(key, found, f"{key} must hold dim/2 = {pairs} numbers > 0", "one for each pair")
        return ()
    return tuple(map(float, given))


def _is_stretch(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LARGEST_COUNT
