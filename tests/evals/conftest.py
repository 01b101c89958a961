"""Makes the folder evals importable: it is part of the checkout, not of the package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
