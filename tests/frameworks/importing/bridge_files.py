"""Text for Megatron-Bridge as tests write it."""

RUNNER = "torchrun --nnodes 4 --nproc-per-node 8 scripts/training/run_recipe.py"


def tree(**sections):
    """An override file with these sections."""
    lines = []
    for section, fields in sections.items():
        lines += [f"{section}:", *(f"  {name}: {value}" for name, value in fields.items())]
    return "\n".join([*lines, ""])
