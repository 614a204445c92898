"""Plans whose sequences are packed with documents: every form of context parallelism, each with something else."""

from dataclasses import replace
from itertools import cycle

from context_combinations import FORMS, PARTS, TWO_DIMENSIONS, pair_by_pair
from covering_plans import SPREAD, Proven

from meshwright.plans.context_parallel import Context

LENGTH = 9
PACKED = Proven("llama", documents=LENGTH, micro_batch=2, layers=2)
"""Four sequences, each with documents of its own; one of them is one document."""
RING = replace(PACKED, cp=4)
FAMILIES = ("bloom", "mistral", "gemma2", "gpt2", "deepseek_v3", "gpt_oss")
"""Slopes, windows, caps, learned positions, latent attention, sinks."""
OTHER_PARTS = (
    ("pipeline", "zb-h1"),
    ("shards", "zero3"),
    ("tensors", "tp and sp"),
    ("replicas", "replicas"),
    ("pipeline", "v-half"),
    ("experts", "ep"),
)
ALONE = (
    PACKED,
    replace(PACKED, micro_batch=3, recompute="full"),
    *(replace(RING, context=form) for form in FORMS if form != "ulysses"),
    *(replace(RING, context=Context(form=form, pieces="contiguous")) for form in ("ring", "token-ring")),
    *(replace(RING, model=family, cp=2) for family in FAMILIES),
    *(replace(RING, model=family, cp=2, context="rsa") for family in ("mistral", "bloom")),
    replace(RING, cp=2, context="all-gather", recompute=("core_attn",)),
    replace(SPREAD, model="gpt2", tp=2, sequence_parallel=True, documents=LENGTH, micro_batch=2),
)


def composed() -> list[Proven]:
    """Every form with another part each."""
    forms = {form: {"cp": 2, "context": form} for form in FORMS}
    forms |= {name: {"cp": 4, "context": context} for name, context in TWO_DIMENSIONS.items()}
    base = replace(PACKED, layers=4, micro_batches=4)
    return [
        replace(base, **said, **PARTS[factor][level])
        for said, (factor, level) in zip(forms.values(), cycle(OTHER_PARTS), strict=False)
    ]


def with_every_part() -> list[Proven]:
    """Pair by pair what cuts a step's work, packed."""
    return [replace(plan, documents=LENGTH) for plan in pair_by_pair()]
