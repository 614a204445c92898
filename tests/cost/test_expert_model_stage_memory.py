"""Memory of every stage of models with experts, against closed forms by hand: states to the byte, activations too.

Megatron-Core keeps 2 bytes of a parameter, 4 of its gradient and 12 of master copy and moments, the last cut over
dp_shard (experts: edp_shard); 2 bytes of an activation, 4 of a row's statistic, 10 of a logit. Stage p of 1F1B holds
pp − p micro-batches. All counts below are written out from the papers' shapes, without a function of the package.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import meshwright.model
from meshwright import api

ZOO = Path(meshwright.model.__file__).parent / "zoo"
T = 4096
"""Tokens of a micro-batch."""


@dataclass
class Layer:
    """Elements of one layer, and bytes that it keeps of a token.

    ``cut`` are elements that tp cuts, ``whole`` the others, ``expert`` all experts' that etp cuts, ``expert_whole``
    theirs that it does not. ``token`` are bytes outside of the routed experts, ``row`` and ``row_cut`` those of a
    token's row of one expert (etp cuts the second). ``tables`` of the
    vocabulary are padded to a multiple of 128·tp, and so are ``logits``.
    """

    cut: int
    whole: int
    expert: int = 0
    expert_whole: int = 0
    token: int = 0
    row: int = 0
    row_cut: int = 0
    chosen: int = 0
    tables: int = 0
    logits: int = 0

    def __add__(self, other: "Layer") -> "Layer":
        return Layer(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Degrees:
    pp: int
    dp: int
    tp: int = 1
    ep: int = 1
    etp: int = 1

    @property
    def edp(self) -> int:
        return self.dp * self.tp // (self.ep * self.etp)

    @property
    def devices(self) -> int:
        return self.pp * self.dp * self.tp


@dataclass(frozen=True)
class Model:
    """Its layers in order, what is at the ends, and the lines that change a configuration of the zoo."""

    name: str
    layers: list[Layer]
    vocab: int
    hidden: int
    changes: dict = field(default_factory=dict)

    def path(self, folder) -> str:
        config = json.loads((ZOO / f"{self.name}.json").read_text()) | self.changes
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)


def sparse(hidden, width, experts, chosen, *, biases=0, router_bias=0):
    """A gated expert: up, gate and down, each with so many ``biases``.

    A token keeps the router's input, of each row the input of the experts, both halves of what the activation takes,
    and what it gives, already weighted: the result that comes back is summed and not kept.
    """
    return Layer(
        cut=0,
        whole=experts * hidden + router_bias,
        expert=experts * (3 * hidden * width + 2 * biases),
        expert_whole=experts * biases,
        token=2 * hidden,
        row=2 * hidden,
        row_cut=2 * 2 * width + 2 * width,
        chosen=chosen,
    )


def dense(hidden, width):
    return Layer(cut=3 * hidden * width, whole=0, token=2 * hidden + 2 * 2 * width + 2 * width)


def grouped(hidden, heads, kv_heads, size, *, head_norms, biases=0):
    """Grouped heads: norm, projection, (norms of heads,) attention, projection, norm."""
    q, kv = heads * size, kv_heads * size
    return Layer(
        cut=hidden * (2 * q + 2 * kv) + (q + 2 * kv + heads if biases else 0),
        whole=2 * hidden + (2 * size if head_norms else 0) + (hidden if biases else 0),
        token=2 * 2 * hidden
        + (2 * (q + kv) if head_norms else 0)
        + 2 * (q + 2 * kv)
        + 4 * heads
        + 2 * q
        + 2 * hidden,
    )


H = 7168
LATENT = Layer(
    cut=1536 * 128 * (128 + 64) + 512 * 128 * (128 + 128) + 128 * 128 * H,
    whole=2 * H + H * 1536 + 1536 + H * (512 + 64) + 512,
    token=2 * 2 * H + 2 * 2 * (1536 + 512) + 2 * 128 * (192 + 192 + 128) + 4 * 128 + 2 * 128 * 128 + 2 * H,
)
SHARED = Layer(cut=3 * H * 2048, whole=0, token=2 * 2 * 2048 + 2 * 2048)
V3_LAYER = LATENT + sparse(H, 2048, 256, 8) + SHARED
V3 = Model("deepseek-v3", [LATENT + dense(H, 18432)] * 3 + [V3_LAYER] * 58, 129280, H)
MODULE = Layer(cut=0, whole=2 * H * H + 3 * H, token=2 * (3 * H + 2 * H + H + H), tables=1, logits=1)
"""Table's copy, projection and three norms; norms of three inputs, the projection's, the last norm's, the head's."""
V3_FURTHER = Model(
    "deepseek-v3",
    [*V3.layers, V3_LAYER + MODULE],
    V3.vocab,
    V3.hidden,
    {"train_nextn_predict_layers": True},
)
QWEN_LAYER = grouped(2048, 32, 4, 128, head_norms=True)
QWEN = Model("qwen3-30b-a3b", [QWEN_LAYER + sparse(2048, 768, 128, 8)] * 48, 151936, 2048)
BETWEEN = Model(
    "qwen3-30b-a3b",
    [QWEN_LAYER + (sparse(2048, 768, 128, 8) if layer % 2 else dense(2048, 6144)) for layer in range(48)],
    QWEN.vocab,
    QWEN.hidden,
    {"decoder_sparse_step": 2},
)
OSS_LAYER = grouped(2880, 64, 8, 64, head_norms=False, biases=1)
OSS = Model(
    "gpt-oss-20b",
    [OSS_LAYER + sparse(2880, 2880, 32, 4, biases=2880, router_bias=32)] * 24,
    201088,
    2880,
)


def by_hand(model, degrees, rank, layers):
    """Bytes of parameters, gradients, optimizer and activations on a rank of a stage."""
    d = degrees
    held = [model.layers[layer] for layer in layers]
    held += [Layer(0, 0, tables=1)] if rank == 0 else []
    held += [Layer(0, model.hidden, token=4 * model.hidden, tables=1, logits=1)] if rank == d.pp - 1 else []
    vocab = -(-model.vocab // (128 * d.tp)) * 128 * d.tp
    elements = sum((one.cut + one.tables * vocab * model.hidden) // d.tp + one.whole for one in held)
    expert = sum(one.expert // (d.ep * d.etp) + one.expert_whole // d.ep for one in held)
    tokens = T // d.tp  # sequence parallelism, or widths that tp cuts
    kept = sum(
        tokens * (one.token + one.logits * 10 * vocab + one.chosen * (d.etp * one.row + one.row_cut))
        for one in held
    )
    return {
        "parameters": 2 * (elements + expert),
        "gradients": 4 * (elements + expert),
        "optimizer": 12 * (elements / d.dp + expert / d.edp),
        "activations": (d.pp - rank) * kept,
    }


CASES = {
    "DeepSeek-V3, pp 16, ep 64": (V3, Degrees(16, 128, ep=64)),
    "DeepSeek-V3, pp 16, tp 2, ep 64": (V3, Degrees(16, 64, tp=2, ep=64)),
    "DeepSeek-V3, pp 16, tp 2, ep 32, etp 2": (V3, Degrees(16, 64, tp=2, ep=32, etp=2)),
    "DeepSeek-V3, pp 8, tp 4, ep 16, etp 4": (V3, Degrees(8, 32, tp=4, ep=16, etp=4)),
    "DeepSeek-V3 with further tokens, pp 16, ep 64": (V3_FURTHER, Degrees(16, 128, ep=64)),
    "DeepSeek-V3 with further tokens, pp 16, tp 2, ep 32, etp 2": (
        V3_FURTHER,
        Degrees(16, 64, tp=2, ep=32, etp=2),
    ),
    "Qwen3-30B-A3B, pp 4, ep 8": (QWEN, Degrees(4, 8, ep=8)),
    "Qwen3-30B-A3B, pp 8, tp 2, ep 4, etp 2": (QWEN, Degrees(8, 8, tp=2, ep=4, etp=2)),
    "dense layers between sparse ones, pp 6, ep 8": (BETWEEN, Degrees(6, 8, ep=8)),
    "dense layers between sparse ones, pp 4, tp 4, ep 16": (BETWEEN, Degrees(4, 8, tp=4, ep=16)),
    "gpt-oss-20b, pp 4, ep 8": (OSS, Degrees(4, 16, ep=8)),
    "gpt-oss-20b, pp 2, tp 2, ep 8, etp 2": (OSS, Degrees(2, 8, tp=2, ep=8, etp=2)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_stage_holds_what_is_counted_by_hand(case, tmp_path):
    model, degrees = CASES[case]
    plan = tmp_path / "plan.yaml"
    layout = (
        f"pp: {degrees.pp}, dp_shard: {degrees.dp}, tp: {degrees.tp}, ep: {degrees.ep}, etp: {degrees.etp}"
    )
    plan.write_text(
        f"plan: 1\nmodel: {model.path(tmp_path)}\ncluster: h100-sxm-80gb x {degrees.devices}\n"
        f"workload: {{seq_len: {T}, global_batch: {degrees.dp * 2 * degrees.pp}}}\nstack: megatron-core\n"
        f"layout: {{{layout}}}\nsharding: zero1\n"
    )
    stages = api.predict(plan).to_json()["memory_bytes"]["stages"]
    assert len(stages) == degrees.pp
    counted = []
    for stage in stages:
        first, last = map(int, (stage["layers"][0] + ".." + stage["layers"][0]).split("..")[:2])
        counted += range(first, last + 1)
        expected = by_hand(model, degrees, stage["rank"], range(first, last + 1))
        found = {key: stage[key] for key in expected}
        assert found == pytest.approx(expected, rel=1e-12, abs=12 * 16), stage
    assert counted == list(range(len(model.layers)))
