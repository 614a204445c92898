"""Ring attention: keys and values circulate during attention (Liu, Zaharia and Abbeel, arXiv 2310.01889)."""

from meshwright.plans.context_parallel_forms.form_kind import (
    ContextFormKind,
    Exchange,
    FormTexts,
    keys_and_values,
)

ring = ContextFormKind(
    texts=FormTexts(
        forward="keys and values, n − 1 times to the next rank, during attention",
        backward="the same with their gradients",
        memory="two parts of others at a time",
        source="arXiv 2310.01889",
    ),
    forward=lambda op: (Exchange("ring", keys_and_values(op)),),
    backward=lambda op: (Exchange("ring", keys_and_values(op, 2)),),
    buffer=lambda op: keys_and_values(op, 4),
    kernel="meshwright.runtime.kernels.context_parallel.ring_attention:RingAttention",
)
"""The buffer of its backward pass: keys, values and their gradients that come, and as many that are passed on."""
