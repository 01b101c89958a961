"""Where this package lies, and its version."""

from pathlib import Path

VERSION = "0.1.0"
PACKAGE = Path(__file__).resolve().parents[1]
