"""All-gather attention: keys and values of all ranks come together (Llama 3, arXiv 2407.21783, section 3.3.2)."""

from meshwright.plans.context_parallel_forms.form_kind import (
    ContextFormKind,
    Exchange,
    FormTexts,
    keys_and_values,
)

all_gather = ContextFormKind(
    texts=FormTexts(
        forward="keys and values gathered before attention",
        backward="gathered again; gradients reduced and scattered after it",
        memory="keys, values and their gradients of the whole sequence",
        source="Llama 3, arXiv 2407.21783, 3.3.2",
    ),
    forward=lambda op: (Exchange("all-gather", keys_and_values(op)),),
    backward=lambda op: (
        Exchange("all-gather", keys_and_values(op)),
        Exchange("reduce-scatter", keys_and_values(op)),
    ),
    buffer=lambda op: keys_and_values(op, 2),
    gathers=True,
    kernel="meshwright.runtime.kernels.context_parallel.all_gather:AllGatherAttention",
)
