"""Serving plans, as texts and at random, that several tests share."""

from hypothesis import strategies as st

from meshwright.plans.files.plan_file import parse_any_plan
from meshwright.plans.serving.number_formats import KV_FORMATS, WEIGHT_FORMATS
from meshwright.plans.serving.serving_file import ServingFile

POOLS = """\
plan: 1
model: deepseek-v3
cluster: h200-sxm-141gb x 40
stack: sglang
workload: {task: serve, input_tokens: 4000, output_tokens: 1000, concurrency: 512,
  objectives: {ttft_ms: 2000, tpot_ms: 50}}
pools:
  fill: {does: prefill, replicas: 2, layout: {tp: 8, ep: 8}, batching: {chunk_tokens: 16384}}
  write:
    does: decode
    layout: {attention_dp: 16, tp: 1, pp: 1, cp: 1, ep: 16, etp: 1}
    batching: {policy: continuous, max_sequences: 64, block_tokens: 16, kv_fraction: 0.9, prefix_cache: true,
      preempt: recompute}
    quantise: {weights: fp8, kv: fp8}
    overlap: two-batch
    allreduce: auto
edges: [{from: fill, to: write, carry: kv}]
"""
ONE_POOL = """\
plan: 1
model: llama-3.1-70b
cluster: h100-sxm-80gb x 16
stack: vllm
workload: {task: serve, input_tokens: 1000, output_tokens: 200, rate_per_s: 2.5, prefix_tokens: 100}
pools:
  all: {does: serve, replicas: 2, layout: {tp: 4}}
"""
PHASES = """\
plan: 1
model: llama-3.1-70b
cluster: h100-sxm-80gb x 8
workload:
  task: serve
  lengths: [{input_tokens: 500, output_tokens: 100, share: 0.75}, {input_tokens: 4000, output_tokens: 20, share: 0.25}]
pools:
  all: {does: serve, layouts: {prefill: {pp: 2, tp: 4}, decode: {tp: 8}}}
"""
TEXTS = (POOLS, ONE_POOL, PHASES)


def serving(text: str = ONE_POOL, *changes: tuple[str, str]) -> ServingFile:
    """Return the plan of a text in which each first text of ``changes`` is replaced by the second."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    found = parse_any_plan(text)
    assert isinstance(found, ServingFile)
    return found


_DEGREE = st.integers(1, 64)
_TOKENS = st.integers(1, 2**24)
_LAYOUT = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("attention_dp", "tp", "pp", "cp", "ep", "etp"), _DEGREE)
)
_BATCHING = st.fixed_dictionaries(
    {},
    optional={
        "chunk_tokens": _TOKENS,
        "max_sequences": st.integers(1, 2**24),
        "block_tokens": _TOKENS,
        "kv_fraction": st.floats(0.01, 1),
        "prefix_cache": st.booleans(),
    },
)
_REST = {
    "replicas": _DEGREE,
    "batching": _BATCHING,
    "quantise": st.fixed_dictionaries(
        {}, optional={"weights": st.sampled_from([*WEIGHT_FORMATS]), "kv": st.sampled_from([*KV_FORMATS])}
    ),
    "overlap": st.sampled_from(("none", "two-batch", "tile", "nano-batch")),
    "allreduce": st.sampled_from(("auto", "ring", "tree", "recursive-doubling")),
}
_POOL = st.fixed_dictionaries(
    {"does": st.sampled_from(("serve", "prefill", "decode"))}, optional={"layout": _LAYOUT, **_REST}
) | st.fixed_dictionaries(
    {"does": st.just("serve"), "layouts": st.fixed_dictionaries({"prefill": _LAYOUT, "decode": _LAYOUT})},
    optional=_REST,
)
_NAME = st.text("abcXYZ019_-", min_size=1, max_size=8)
_LENGTHS = {"input_tokens": _TOKENS, "output_tokens": _TOKENS}
_ENTRY = st.fixed_dictionaries({**_LENGTHS, "share": st.floats(0.01, 1)})
_MS = st.floats(0.1, 1e6)
_OBJECTIVES = st.fixed_dictionaries({}, optional={"ttft_ms": _MS, "tpot_ms": _MS})
_OPTIONAL = {"prefix_tokens": st.integers(0, 2**24), "objectives": _OBJECTIVES}
_LOADS = st.sampled_from(({}, {"concurrency": 7}, {"rate_per_s": 0.5}))


@st.composite
def serving_files(draw: st.DrawFn) -> ServingFile:
    """Draw a serving plan of any shape that a file can have, legal or not."""
    histogram = st.fixed_dictionaries({"lengths": st.lists(_ENTRY, min_size=1, max_size=3).map(tuple)})
    lengths = draw(st.fixed_dictionaries(_LENGTHS) | histogram)
    edge = st.fixed_dictionaries({"from": _NAME, "to": _NAME})
    return ServingFile.model_validate(
        {
            "plan": 1,
            "model": "a-model",
            "cluster": "h100-sxm-80gb x 8",
            "workload": {
                "task": "serve",
                **lengths,
                **draw(_LOADS),
                **draw(st.fixed_dictionaries({}, optional=_OPTIONAL)),
            },
            "pools": draw(st.dictionaries(_NAME, _POOL, min_size=1, max_size=3)),
            "edges": tuple(draw(st.lists(edge, max_size=2))),
        }
    )
