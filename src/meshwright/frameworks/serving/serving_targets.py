"""Serving plans as commands of engines. ``SERVING_TARGETS`` lists what ``export --to`` accepts of them."""

from typing import Protocol

from meshwright.frameworks.exporting.export_result import Export
from meshwright.frameworks.sglang.sglang_export import export_sglang
from meshwright.frameworks.tensorrt_llm.tensorrt_llm_export import export_tensorrt_llm
from meshwright.frameworks.vllm.vllm_export import export_vllm
from meshwright.plans.serving.resolve_serving import ResolvedServing


class ServingExporter(Protocol):
    """Writes a legal serving plan as the commands of one engine."""

    def __call__(self, resolved: ResolvedServing) -> Export:
        """Return the files for a plan. Raises UnsupportedError with everything that the engine cannot run."""
        ...


SERVING_TARGETS: dict[str, ServingExporter] = {
    "vllm": export_vllm,
    "sglang": export_sglang,
    "tensorrt-llm": export_tensorrt_llm,
}
