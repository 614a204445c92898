"""Names of served models and of their checkpoints."""

import pytest

from meshwright.validation.serving.checkpoint_names import CheckpointName, checkpoint_name


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("Llama 3.3 70B", CheckpointName("llama-3.1-70b")),
        ("meta-llama/Llama-3.1-405B-FP8", CheckpointName("llama-3.1-405b", "fp8")),
        ("Llama-3.1-70B-Instruct-FP8-KV", CheckpointName("llama-3.1-70b", "fp8", "fp8")),
        ("nvidia/Qwen3-32B-NVFP4", CheckpointName("qwen3-32b", "fp4")),
        ("nvidia/DeepSeek-V3.1-NVFP4", CheckpointName("deepseek-v3", "fp4")),
        ("Qwen3-Coder-480B-A35B-Instruct-FP8", CheckpointName("qwen3-coder-480b-a35b", "fp8")),
        ("Qwen3-30B-A3B-Instruct-2507", CheckpointName("qwen3-30b-a3b-2507")),
        ("DeepSeek-R1/V3", CheckpointName("deepseek-v3")),
        ("DeepSeek-V3/R1", CheckpointName("deepseek-v3")),
        ("DeepSeek-R1-0528", CheckpointName("deepseek-v3")),
        ("LLaMA 70B", CheckpointName("llama-2-70b")),
        ("Mixtral-8x22B-Instruct-v0.1", CheckpointName("mixtral-8x22b")),
        ("zhipuai/GLM-5", CheckpointName("glm-5")),
        ("moonshotai/Kimi-K2.5", CheckpointName("kimi-k2.5")),
        ("MiniMaxAI/MiniMax-M2.5", CheckpointName("minimax-m2.5")),
        ("Qwen/Qwen3.5-397B-A17B", CheckpointName("qwen3.5-397b-a17b")),
        ("GPT-J 6B", CheckpointName("gpt-j-6b")),
        ("Nemotron Nano 30B", CheckpointName("nemotron-3-nano-30b-a3b")),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", CheckpointName("nemotron-3-nano-30b-a3b", "fp8")),
        ("openai/gpt-oss-120b", CheckpointName("gpt-oss-120b")),
    ],
)
def test_names_are_translated(text, weights):
    assert checkpoint_name(text) == weights


@pytest.mark.parametrize("text", ["Llama 9 70B", "fp8", "-fp8", "acme/unknown-FP8"])
def test_other_names_are_refused(text):
    with pytest.raises(ValueError, match="model of the zoo"):
        checkpoint_name(text)
