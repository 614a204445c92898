"""Names of serving engines."""

import pytest

from meshwright.validation.serving.engine_family import Engine, engine_of


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("vllm 0.18.0", Engine("vllm", "0.18.0")),
        ("vllm ", Engine("vllm")),
        ("vLLM benchmark_throughput.py", Engine("vllm")),
        ("vLLM 0.9.0.1 rocm6.4.1 20250605", Engine("vllm", "0.9.0.1")),
        ("SGLang (lmsysorg/sglang:latest), NIXL", Engine("sglang")),
        ("sglang nightly-dev-20260216-d3bae71e", Engine("sglang")),
        ("trtllm 1.0.0rc3", Engine("tensorrt-llm", "1.0.0rc3")),
        ("TensorRT-LLM 0.20 (PyTorch backend)", Engine("tensorrt-llm", "0.20")),
        ("TensorRT-LLM + Triton", Engine("tensorrt-llm")),
        ("TensorRT 10.11", Engine("tensorrt-llm")),
        ("DeepSeek production", Engine("generic-serving")),
        ("sglangish 3", Engine("generic-serving")),
        ("", Engine("generic-serving")),
    ],
)
def test_family_and_release(text, engine):
    assert engine_of(text) == engine
