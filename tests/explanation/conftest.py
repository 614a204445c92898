"""Makes the modules of scripts/ importable: a test compares what they would write with what is there."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
