"""The forms of context parallelism, by name; a new one is a file and a line in ``CONTEXT_FORMS``."""

from collections.abc import Mapping

from meshwright.plans.context_parallel_forms.all_gather import all_gather
from meshwright.plans.context_parallel_forms.form_kind import ContextFormKind
from meshwright.plans.context_parallel_forms.ring import ring
from meshwright.plans.context_parallel_forms.ring_self_attention import rsa
from meshwright.plans.context_parallel_forms.token_ring import token_ring
from meshwright.plans.context_parallel_forms.ulysses import ulysses

CONTEXT_FORMS: Mapping[str, ContextFormKind] = {
    "ring": ring,
    "all-gather": all_gather,
    "token-ring": token_ring,
    "rsa": rsa,
    "ulysses": ulysses,
}
