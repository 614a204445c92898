"""A small measured cluster of two devices that no catalogue has, and a model that is a folder."""

import json

ID = "some-cpu"
CLUSTER = f"""name: {ID} x 2
pools:
  - name: {ID}
    count: 2
    device:
      id: {ID}
      peak_tflops: {{bf16: 0.4868, fp32: 0.1102}}
      memory_gib: 11.77
      memory_gbyte_per_s: 24.07
      scaleup_gbyte_per_s_per_device: 2.7
      scaleup_link: gloo
      power_w: unknown
      source: measured 2026-11-21 with torch 2.13.0, backend gloo
      confidence: measured
    node:
      name: measured-{ID}
      devices: 2
      nic_gbit_per_s_per_node: 0.1
    usd_per_device_hour: unknown
calibration:
  gemm_efficiency: 0.8409
  hbm_efficiency: 0.7046
  attention_efficiency.flash: 0.07846
  multi_process_latency_s: 0.001214
"""
"""Figures of two processes of a host of two cores, as ``measure`` wrote them on 2026-11-21."""
CONFIG = {
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
QUERY_NORMS = CONFIG | {"model_type": "qwen3", "head_dim": 32}
"""A model of which the columns of a table do not say all."""


def machine_and_model(folder, config=None):
    """``host.yaml`` and ``ours/config.json`` in a folder; returns their paths as a person writes them."""
    (folder / "ours").mkdir()
    (folder / "ours" / "config.json").write_text(json.dumps(config or CONFIG), encoding="utf-8")
    (folder / "host.yaml").write_text(CLUSTER, encoding="utf-8")
    return "host.yaml", "ours"
