"""Token dispatch over ep: an implementation of each form in ``program/expert_dispatch/dispatch_forms.py``."""

from collections.abc import Mapping

from meshwright.program.expert_dispatch.dispatch_forms import ExchangeForm
from meshwright.runtime.kernels.token_dispatch.bucketed import BucketedDispatch
from meshwright.runtime.kernels.token_dispatch.deduplicated import hierarchical, once_per_rank
from meshwright.runtime.kernels.token_dispatch.interface import DispatchFactory
from meshwright.runtime.kernels.token_dispatch.per_expert import PerExpertDispatch

FORMS: Mapping[ExchangeForm, DispatchFactory] = {
    "flat": PerExpertDispatch,
    "bucketed": BucketedDispatch,
    "once-per-rank": once_per_rank,
    "hierarchical": hierarchical,
}
"""Every form of dispatch, by name."""
