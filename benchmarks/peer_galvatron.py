"""Asked in an environment of hetu-galvatron's: what its search engine finds with profiles that it ships.

Of these, the engine of 2.4.0 reads those of BERT: the ones of LLaMA and GPT have an older form, or lack memory. Reads a
question from standard input, writes one line of JSON to standard output. Only the engine is loaded: what trains wants a
GPU.
"""

import argparse
import contextlib
import importlib
import json
import os
import re
import sys
import tempfile
import time
import types

PROFILED, HIDDEN = "hidden1024_head16", 1024
"""Of ``models/bert_hf/configs``: BERT-large."""
BEST = re.compile(r"Optimal bsz = (\d+) Optimal chunk = (\d+).*?Max throughput=(\S+) samples/s")
DEGREES = re.compile(r"pp_deg=(\d+) Minimized timecost=(\S+)")


def engine(package: str) -> tuple[type, argparse.Namespace]:
    """The search engine's class and its default options."""
    for name in ("core", "models"):
        module = types.ModuleType(f"galvatron.{name}")
        module.__path__ = [os.path.join(package, name)]
        sys.modules[module.__name__] = module
    options = importlib.import_module("galvatron.core.search_engine.arguments")
    parser = argparse.ArgumentParser()
    options.galvatron_search_args(parser)
    return importlib.import_module("galvatron.core.search_engine").GalvatronSearchEngine, parser.parse_args(
        []
    )


def recording(package: str) -> list[dict]:
    """Record every problem that the dynamic programming over layers solves, its answers and CPU seconds."""
    solver = importlib.import_module("galvatron.core.search_engine.dynamic_programming").DPAlg
    found, fit = [], solver.fit

    def recorded(self):
        began = time.process_time()
        answer = fit(self)
        spent = time.process_time() - began
        if self.fine_grained_mode:
            problem = {
                "bytes": self.v_data.tolist(),
                "seconds": self.intra_cost.tolist(),
                "change": self.inter_cost[-1].tolist(),
                "capacity": self.max_mem - 1,
                "others": {
                    str(key): [self.other_mem_cost[key], self.other_time_cost[key]] for key in answer[0]
                },
                "total": {str(key): value for key, value in answer[0].items()},
                "cpu_s": spent,
            }
            found.append(problem)
        return answer

    solver.fit = recorded
    return found


def main() -> None:
    """Search for one batch on one node; with a path as argument, write the problems over layers there."""
    asked = json.load(sys.stdin)
    galvatron = importlib.import_module("galvatron")
    package = os.path.dirname(galvatron.__file__)
    with contextlib.redirect_stdout(sys.stderr):
        search, args = engine(package)
        problems = recording(package)
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "num_nodes": 1,
            "num_gpus_per_node": asked["devices"],
            "memory_constraint": asked["memory_gib"],
            "settle_bsz": asked["batch"],
            "max_pp_deg": asked["devices"],
            "pipeline_type": "pipedream_flush",
            "time_profile_mode": "sequence",
            "memory_profile_mode": "sequence",
            "sequence_parallel": True,
            "hidden_size": HIDDEN,
            "log_dir": folder,
            "output_config_path": folder,
        }
        for name, value in given.items():
            setattr(args, name, value)
        said = os.path.join(folder, "said")
        began = time.process_time()
        with open(said, "w", encoding="utf-8") as out, contextlib.redirect_stdout(out):
            found = search(args)
            layers = [{"hidden_size": HIDDEN, "layer_num": asked["layers"], "seq_len": asked["seq_len"]}]
            found.set_search_engine_info(os.path.join(package, "models", "bert_hf"), layers, PROFILED)
            found.set_model_type("gpt")
            found.initialize_search_engine()
            found.parallelism_optimization()
        cpu_s = time.process_time() - began
        with open(said, encoding="utf-8") as text:
            lines = text.read()
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as out:
            json.dump(problems, out, default=float)
    best, degrees = BEST.search(lines), DEGREES.search(lines)
    if best is None or degrees is None:
        print(json.dumps({"cpu_s": cpu_s, "strategies": len(found.strategies), "found": None}))
        return
    after = lines[degrees.end() :].splitlines()
    layout = next((line.strip() for line in after if re.match(r"\s*\d+-\d+", line)), "")
    answer = {"pp": int(degrees[1]), "chunks": int(best[2]), "step_s": float(degrees[2]), "layers": layout}
    print(json.dumps({"cpu_s": cpu_s, "strategies": len(found.strategies), "found": answer}))


if __name__ == "__main__":
    main()
