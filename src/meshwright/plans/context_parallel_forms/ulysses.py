"""Ulysses: all-to-all gives each rank whole sequences of some heads (Jacobs et al., arXiv 2309.14509)."""

from meshwright.plans.context_parallel_forms.form_kind import ContextFormKind, Elements, FormTexts

ulysses = ContextFormKind(
    texts=FormTexts(
        forward="all-to-all before and after attention: whole sequences of heads / cp",
        backward="the same in reverse",
        memory="its output with the other ranks' positions",
        source="arXiv 2309.14509",
    ),
    forward=lambda op: (),
    backward=lambda op: (),
    buffer=lambda op: Elements(0),
    whole_sequences=True,
    kernel="meshwright.runtime.kernels.context_parallel.interface:WholeSequence",
)
"""The exchange of heads is that of the inner dimension of other forms."""
