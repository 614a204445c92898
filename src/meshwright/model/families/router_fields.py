"""Read a configuration's routing: how routers choose, weigh and balance experts.

Keys are those of transformers 5.23 and of DeepSeek's own configurations (``scoring_func``, ``topk_method``,
``aux_loss_alpha``, ``seq_aux``). Two are read for every family, so that a training can set them:
``seq_aux``, whether the balance is per sequence, and ``bias_update_speed``, DeepSeek-V3's γ.
"""

from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.router import Groups, LoadBalance, Routing

SUM_EPSILON = 1e-20
"""DeepSeek's addend to the sum that weights are divided by."""


def softmax_routing(fields: Fields, arch: Architecture) -> Routing:
    """Read DeepSeek-V2's routing: ``greedy`` over all experts, or within the best groups by their best expert."""
    refuse_other_values(fields, "scoring_func", "softmax")
    method = refuse_other_values(fields, "topk_method", "greedy", "group_limited_greedy")
    if fields.flag("norm_topk_prob", False):
        rule = "programs differ in what normalised weights of DeepSeek-V2 are: transformers leaves them as they are"
        fields.unsupported("norm_topk_prob", True, rule, "false, as in the released models")
    return Routing(
        scores="softmax",
        projected_in_fp32=True,
        scaling=fields.number("routed_scaling_factor", default=1.0, positive=True),
        groups=_groups(fields, arch, best=1) if method == "group_limited_greedy" else None,
        balance=_own_alpha(fields),
    )


def corrected_routing(fields: Fields, arch: Architecture) -> Routing:
    """Read DeepSeek-V3's routing: sigmoid plus correction, within the best groups by their two best experts."""
    refuse_other_values(fields, "scoring_func", "sigmoid")
    refuse_other_values(fields, "topk_method", "noaux_tc")
    normalised = fields.flag("norm_topk_prob", False)
    return Routing(
        scores="sigmoid",
        projected_in_fp32=True,
        normalised=normalised,
        epsilon=SUM_EPSILON,
        scaling=fields.number("routed_scaling_factor", default=1.0, positive=True),
        groups=_groups(fields, arch, best=2),
        balance=_own_alpha(fields),
        correction_speed=fields.number("bias_update_speed", default=0.0),
    )


def layers_pooled(fields: Fields, arch: Architecture) -> LoadBalance | None:
    """Read ``router_aux_loss_coef``, if ``output_router_logits`` enables it as in transformers.

    There the choices and probabilities of all layers are pooled before they are multiplied, and a token's k choices
    count k times: with equal loads of all layers this equals k/layers for each layer separately.
    """
    if arch.moe is None or not fields.flag("output_router_logits", False):
        return None
    coefficient = fields.number("router_aux_loss_coef", default=0.001)
    share = arch.moe.experts_per_token / sum(arch.moe.layers)
    return _balance(fields, coefficient * share, by_sequence=False)


def refuse_other_values(fields: Fields, key: str, *supported: str) -> str:
    """Return the value of a key of which only some values are supported; absent is the first of them."""
    value = fields.text(key, default=supported[0])
    if value not in supported:
        fields.unsupported(key, value, f"{key} must be " + " or ".join(supported), supported[0])
    return value


def _own_alpha(fields: Fields) -> LoadBalance | None:
    """Read ``aux_loss_alpha``, which applies to each layer separately."""
    return _balance(fields, fields.number("aux_loss_alpha", default=0.0), by_sequence=True)


def _balance(fields: Fields, coefficient: float, *, by_sequence: bool) -> LoadBalance | None:
    scope = fields.flag("seq_aux", by_sequence)
    if not coefficient:
        return None
    return LoadBalance(coefficient=coefficient, scope="sequence" if scope else "micro-batch")


def _groups(fields: Fields, arch: Architecture, *, best: int) -> Groups | None:
    """Read the groups of experts; None if one group holds all."""
    count = fields.size("n_group", default=1, most=LARGEST_COUNT)
    chosen = fields.size("topk_group", default=1, most=LARGEST_COUNT)
    if arch.moe is None or count == 1:
        return None
    experts, active = arch.moe.experts, arch.moe.experts_per_token
    size = experts // count
    if experts % count:
        rule = f"experts % n_group = {experts} % {count} = {experts % count}, must be 0"
        fields.problem("n_group", count, rule, "groups of as many experts each")
    elif size < best:
        rule = f"a group is worth the sum of its {best} best experts and has {size}"
        fields.problem("n_group", count, rule, f"groups of at least {best} experts")
    elif not active / size <= chosen <= count:
        rule = f"num_experts_per_tok / (experts in a group) = {active} / {size} <= topk_group <= n_group = {count}"
        fields.problem("topk_group", chosen, rule, "groups enough for the experts of a token")
    return Groups(count=count, chosen=min(chosen, count), best=best)
