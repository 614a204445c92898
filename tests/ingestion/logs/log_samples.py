"""Sample logs, and lines of Megatron for logs that a test makes."""

from pathlib import Path

from meshwright.ingestion.logs.summary import read_log

SAMPLES = Path(__file__).parent / "samples"
NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.suffix != ".md")
BANNER = "------------------------ arguments ------------------------\n"
OUT_OF_MEMORY = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 3 has …\n"
)
SMALL = {
    "hidden": 1024,
    "ffn_hidden": 4096,
    "ffn": "gelu",
    "heads": 16,
    "vocab": 50257,
    "seq_len": 1024,
    "device": "v100-sxm2-32gb",
}
GIVEN = {
    "deepspeed-0.14.log": {"model": "llama-2-7b", "seq_len": 4096, "device": "a100-sxm-80gb"},
    "deepspeed-0.3.log": SMALL | {"layers": 24},
    "deepspeed-pipeline-0.15.log": SMALL | {"layers": 12},
    "megatron-bridge-0.3.log": {"device": "h100-sxm-80gb", "devices": 64},
    "megatron-core-0.11.log": {"device": "mi300x"},
    "megatron-core-0.6.log": {"device": "h100-sxm-80gb"},
    "megatron-deepspeed-2024.log": {"device": "a100-sxm-40gb"},
    "megatron-lm-2.6.log": {"device": "a100-sxm-80gb"},
    "nemo-1.log": {
        "model": "llama-2-70b",
        "device": "h100-sxm-80gb",
        "seq_len": 8192,
        "global_batch": 128,
        "devices": 64,
        "tp": 4,
        "pp": 4,
        "virtual_stages": 5,
        "sharding": "zero1",
    },
    "nemo-2.log": {"model": "llama-3.1-8b", "device": "b200", "seq_len": 8192, "micro_batch": 2},
    "out-of-memory.log": {"device": "mi300x"},
}
"""What must be said beside a sample so that it makes a row."""


def text_of(name):
    """The text of a sample, carriage returns and all."""
    return (SAMPLES / name).read_bytes().decode("utf-8")


def summary_of(text):
    """The summary of a log that is one text."""
    return read_log(text.splitlines(keepends=True))


def step(iteration, milliseconds=1000.0, batch=64, mark=""):
    """One line of Megatron's training loop."""
    return (
        f"{mark} [2025-11-13 16:26:12] iteration {iteration:8d}/  100000 | consumed samples: {64 * iteration:12d} | "
        f"elapsed time per iteration (ms): {milliseconds:.1f} | learning rate: 1.500000E-04 | "
        f"global batch size: {batch:5d} | lm loss: 1.070000E+01 | loss scale: 1.0 | grad norm: 2.000 | "
        f"number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def steps(first, last, milliseconds=1000.0, **more):
    """Lines of consecutive iterations."""
    return "".join(step(number, milliseconds, **more) for number in range(first, last + 1))


def table(**options):
    """Megatron's table of arguments."""
    lines = (f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in options.items())
    return BANNER + "".join(lines) + "-------------------- end of arguments ---------------------\n"
