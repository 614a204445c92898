"""Ring self-attention: keys circulate for all scores, which are materialised, then values (arXiv 2105.13120)."""

from dataclasses import replace

from meshwright.plans.context_parallel_forms.form_kind import FormTexts
from meshwright.plans.context_parallel_forms.ring import ring

rsa = replace(
    ring,
    texts=FormTexts(
        forward="keys around the ring for all scores, then values",
        backward="values and keys around the ring with their gradients",
        memory="weights of its rows over the whole sequence, kept",
        source="arXiv 2105.13120",
    ),
    kernel="meshwright.runtime.kernels.context_parallel.ring_self_attention:RingSelfAttention",
    writes_scores=True,
)
"""Its rings move the bytes of ring attention."""
