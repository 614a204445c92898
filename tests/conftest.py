"""Property tests have no deadline; test modules import scripts and helper modules of any test folder by bare name."""

import sys
from pathlib import Path

from hypothesis import settings

settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")

HERE = Path(__file__).parent
FOLDERS = sorted({str(path.parent) for path in HERE.rglob("*.py") if path.parent != HERE})
sys.path += [
    folder for folder in (str(HERE), *FOLDERS, str(HERE.parent / "scripts")) if folder not in sys.path
]

pytest_plugins = ["folder_seconds", "quick_cases", "shared_answers"]
