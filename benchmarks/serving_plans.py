"""The 21 searches of serving plans that AIConfigurator was timed on, by ``plan``: seconds, memory, plans.

Run: ``python benchmarks/serving_plans.py [--write]``; about a minute. Each search is a process of its own, whose CPU
seconds (user and system) and peak memory include the start of Python.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from meshwright import __version__

TOKENS = ("--input-tokens", "4000", "--output-tokens", "1000")
TRTLLM = ("--stack", "tensorrt-llm")
PEER = "AIConfigurator 0.12.0"


@dataclass(frozen=True)
class Work:
    """A search. ``peer``: tokens/s per GPU and CPU seconds of the other program; None: it is no search of its own."""

    model: str
    cluster: str
    peer: tuple[float, float] | None
    limits: tuple[int, int] = (2000, 30)
    more: tuple[str, ...] = TRTLLM
    note: str = ""

    @property
    def devices(self) -> int:
        """Devices of the cluster, or the most of them."""
        return int(self.cluster.split()[-1].lstrip("<="))

    def words(self) -> list[str]:
        """Return the words of the command."""
        ttft, tpot = map(str, self.limits)
        limits = ("--max-ttft-ms", ttft, "--max-tpot-ms", tpot)
        return ["plan", self.model, "--on", self.cluster, *TOKENS, *limits, *self.more, "--json"]


H100, H200 = "h100-sxm-80gb x", "h200-sxm-141gb x"
WORKS = (
    Work("llama-3.1-70b", f"{H100} 8", (279.96, 8.1)),
    Work("llama-3.1-70b", f"{H100} 16", (308.49, 7.4)),
    Work("llama-3.1-70b", f"{H100} 32", (335.98, 7.9)),
    Work("llama-3.1-70b", f"{H200} 8", (492.66, 8.9)),
    Work("llama-3.1-70b", f"{H200} 16", (492.66, 8.4)),
    Work("llama-3.1-70b", f"{H200} 32", (401.35, 9.0)),
    Work("qwen3-32b", f"{H100} 8", (712.39, 10.1)),
    Work("qwen3-32b", f"{H100} 16", (712.39, 9.1)),
    Work("qwen3-32b", f"{H100} 32", (749.23, 10.1)),
    Work("qwen3-32b", f"{H200} 8", (897.30, 10.0)),
    Work("qwen3-32b", f"{H200} 16", (897.30, 10.9)),
    Work("qwen3-32b", f"{H200} 32", (904.85, 11.4)),
    Work("qwen3-32b", f"{H200} 32", (910.74, 10.9), more=("--stack", "vllm"), note="vLLM"),
    Work("qwen3-32b", f"{H200} 32", (946.91, 9.1), more=("--stack", "sglang"), note="SGLang"),
    Work("qwen3-32b", f"{H200} 32", (946.91, 25.1), more=(), note="all engines"),
    Work(
        "qwen3-32b",
        f"{H200} 32",
        (1449.23, 9.7),
        more=(*TRTLLM, "--allow-quantise", "fp8"),
        note="fp8 allowed",
    ),
    Work("qwen3-235b-a22b", f"{H200} 32", (226.73, 38.2)),
    Work("deepseek-v3", f"{H200} 32", (495.14, 32.8), (5000, 50)),
    Work("deepseek-v3", f"{H200} 32", (631.29, 137.1), (5000, 50), ("--stack", "sglang"), "SGLang, wide EP"),
    Work("llama-3.1-405b", f"{H200} 32", (71.21, 6.9), (5000, 50)),
    Work("qwen3-32b", f"{H200} <=64", (897.30, 12.4), more=(*TRTLLM, "--rate", "20"), note="20 requests/s"),
)
LARGE = Work("deepseek-v3", f"{H200} 1024", None, (5000, 50))
HEAD = (
    f"| work | plan | requests at once | tokens/s | tokens/s/GPU | TTFT ms | TPOT ms | CPU s | MB | "
    f"{PEER}: tokens/s/GPU | its CPU s |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


@dataclass(frozen=True)
class Searched:
    """The answer of a search with its CPU seconds and peak MB."""

    work: Work
    data: dict[str, Any]
    cpu_s: float
    megabytes: float

    @property
    def first(self) -> dict[str, Any]:
        """The best plan."""
        found: dict[str, Any] = self.data["plans"][0]
        return found


def searched(work: Work) -> Searched:
    """Run a search in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "meshwright", *work.words()], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, text
    return Searched(work, json.loads(text), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3)


def start_seconds() -> float:
    """Return the CPU seconds in which Python starts and imports what ``plan`` needs."""
    code = "import meshwright.cli.main, meshwright.cli.terminal.serving_search_answer"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def compiled() -> str:
    """Return a remark where Python keeps no bytecode, so that every command compiles its modules."""
    return " (no bytecode is kept: each command compiles)" if sys.dont_write_bytecode else ""


def row(found: Searched) -> str:
    """Return a line of the table."""
    work, plan, serving = found.work, found.first["plan"], found.first["predict"]["serving"]
    devices = sum(pool["devices"] for pool in serving["pools"].values())
    per_gpu = serving["output_tokens_per_s"] / (devices if work.cluster.find("<=") >= 0 else work.devices)
    pools = "; ".join(f"{name} {pool['replicas']}× {_degrees(pool)}" for name, pool in plan["pools"].items())
    note = f", {work.note}" if work.note else ""
    limits = "" if work.limits == (2000, 30) else f" ({work.limits[0]}/{work.limits[1]} ms)"
    peer = ("–", "–") if work.peer is None else (f"{work.peer[0]:,.2f}", f"{work.peer[1]:.1f}")
    cells = (
        f"{work.model}, {work.cluster}{note}{limits}",
        f"{plan['stack']}: {pools}",
        f"{plan['workload'].get('concurrency', '–')}",
        f"{serving['output_tokens_per_s']:,.0f}",
        f"{per_gpu:,.2f}",
        f"{1e3 * serving['ttft_s']:,.0f}",
        f"{1e3 * serving['tpot_s']:.2f}",
        f"{found.cpu_s:.2f}",
        f"{found.megabytes:.0f}",
        *peer,
    )
    return f"| {' | '.join(cells)} |"


def _degrees(pool: dict[str, Any]) -> str:
    formats = " ".join(pool["quantise"].values())
    degrees = " ".join(f"{name}{size}" for name, size in pool["layout"].items() if size > 1) or "tp1"
    return f"{degrees} {formats}".rstrip()


def monotone(results: list[Searched]) -> Iterator[str]:
    """Yield a line for each pair of works that differ in devices alone."""
    kinds: dict[tuple[str, ...], list[Searched]] = {}
    for one in results:
        if "<=" not in one.work.cluster:
            key = (one.work.model, one.work.cluster.split()[0], str(one.work.limits), *one.work.more)
            kinds.setdefault(key, []).append(one)
    for sizes in kinds.values():
        for small, large in pairwise(sizes):
            times = large.work.devices // small.work.devices
            rates = [one.first["predict"]["serving"]["output_tokens_per_s"] for one in (small, large)]
            assert rates[1] >= times * rates[0] * (1 - 1e-9), (small.work, large.work, rates)
            yield (
                f"- {large.work.model}, {large.work.cluster}: {rates[1]:,.0f} tokens/s, {times} × {rates[0]:,.0f} = "
                f"{times * rates[0]:,.0f} of {small.work.devices} devices."
            )


def page(lines: list[str], results: list[Searched], large: str) -> str:
    """Return the page that is kept under ``benchmarks/``."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    most, mean = max(one.cpu_s for one in results), sum(one.cpu_s for one in results) / len(results)
    load, start = os.getloadavg()[1], start_seconds()
    memory = max(one.megabytes for one in results)
    comparisons = "\n".join(monotone(results))
    return f"""# Searches of serving plans

`plan` on the {len(results)} searches on which {PEER} was timed on the same kind of machine (4,000 input and 1,000
output tokens, mean TTFT at most 2,000 ms and TPOT 30 ms unless said), by version {__version__} on
{date.today().isoformat()} ({machine}; load {load:.1f} by other work). CPU s and MB are those of the whole command; the
start of Python with all imports alone takes {start:.2f} CPU s of them{compiled()}.
All rates are predicted, by each program with its own model of costs: they compare searches only where both would
predict a plan alike. Made by `python benchmarks/serving_plans.py --write`.

A command took {mean:.2f} CPU s in the mean and {most:.2f} at most ({PEER}: 6.9 to 137.1), the search and its report
{most - start:.2f} at most, and {memory:.0f} MB at most.

{chr(10).join([HEAD, *lines])}

## More devices

k times the devices never write less than k times the tokens ({PEER} proposes 12,843 tokens/s for 32 H200, and four
copies of its plan for 8 would write 15,765):

{comparisons}

## 1,024 devices

{chr(10).join([HEAD, large])}
"""


def main() -> None:
    """Print the tables; ``--write`` keeps them."""
    results, lines = [], []
    for work in WORKS:
        results.append(searched(work))
        lines.append(row(results[-1]))
        print(lines[-1], flush=True)
    print(*monotone(results), sep="\n", flush=True)
    large = row(searched(LARGE))
    print(large)
    if "--write" in sys.argv[1:]:
        text = page(lines, results, large)
        (Path(__file__).parent / "serving-plans.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
