"""Price plans with llm-analysis, in the Python of an environment that has it; JSON in, JSON out.

Run by ``peer_search.py``. llm-analysis prices one plan at a time and searches nothing: the loop is ours.
"""

import json
import sys
import time
from typing import Any

from llm_analysis.analysis import ActivationRecomputation, train


def priced(question: dict[str, Any], plan: dict[str, int]) -> float | None:
    """Seconds of a step by llm-analysis; None where it says that the plan does not fit, or refuses it."""
    full = ActivationRecomputation.FULL if plan["full"] else ActivationRecomputation.NONE
    degrees = {f"{axis}_size": plan[axis] for axis in ("tp", "pp", "dp")}
    try:
        found = train(
            **question["given"],
            **degrees,
            batch_size_per_gpu=plan["micro_batch"],
            activation_recomputation=full,
            ds_zero=1,
            log_level="CRITICAL",
        )
    except (AssertionError, ValueError):
        return None
    return found["latency_per_iter"] if found["memory_left_per_gpu"] >= 0 else None


if __name__ == "__main__":
    question = json.load(sys.stdin)
    began = time.process_time()
    times = [priced(question, plan) for plan in question["plans"]]
    seconds = time.process_time() - began
    json.dump({"times": times, "cpu_s": seconds}, sys.stdout)
