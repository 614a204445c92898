"""Parse the words on standard input (a JSON list) as torchrun does; print its release. Ends with 3 without torch."""

import json
import sys

try:
    import torch
    from torch.distributed.run import get_args_parser
except ImportError:
    sys.exit(3)

get_args_parser().parse_args(json.load(sys.stdin))
print(f"torch {torch.__version__}")
