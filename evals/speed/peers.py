"""The peers' own environments: one folder each, from PyPI, with the PyTorch of this environment."""

import subprocess
import sys
import venv
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from fedscale_ext.core.errors import UserError

PEERS = {
    "pfl": ("pfl==0.6.0",),
    "flower": ("flwr[simulation]==1.41.0",),
    "fedscale": ("fedscale==1.0", "grpcio", "protobuf", "PyYAML", "tensorboard", "pillow", "overrides"),
    "htfllib": ("h5py", "scikit-learn"),  # itself no package: `python -m evals.speed.kept_models` takes a checkout
}
PACKAGES = {"pfl": "pfl", "flower": "flwr", "fedscale": "fedscale", "htfllib": "h5py"}  # what gives each its version
_TIMEOUT_S = 3600


def python_of(peer: str | None, folder: Path) -> Path | None:
    """The Python that a row runs in: this one for our own rows, None where a peer is not installed."""
    if peer is None:
        return Path(sys.executable)
    python = folder / peer / "bin" / "python"
    return python if python.exists() else None


@lru_cache
def versions_in(python: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """Versions of packages in an environment; "" for one that it lacks."""
    code = (
        "import sys, importlib.metadata as m\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(m.version(name))\n"
        "    except m.PackageNotFoundError: print()\n"
    )
    done = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True, timeout=60, check=True)
    return dict(zip(packages, done.stdout.split("\n"), strict=False))


def missing(peer: str | None, folder: Path) -> str | None:
    """Why a row cannot run, or None: its environment is absent, incomplete or has another PyTorch."""
    python = python_of(peer, folder)
    if peer is None:
        return None
    if python is None:
        return "not installed: --install-peers"
    found = versions_in(python, ("torch", PACKAGES[peer]))
    if not found[PACKAGES[peer]]:
        return "not installed: --install-peers"
    if _public(found["torch"]) != _public(version("torch")):
        return f"has torch {found['torch']} instead of {version('torch')}: --install-peers into a new folder"
    return None


def install(folder: Path, say: Callable[[str], None]) -> None:
    """Make each environment that is not there yet; UserError when pip fails."""
    for peer, packages in PEERS.items():
        if missing(peer, folder) is None:
            say(f"{peer}: is there already")
            continue
        say(f"{peer}: installing {' '.join(packages)}")
        venv.create(folder / peer, with_pip=True)
        # torch, torchvision and the peer in one call: apart, pip would take other builds of them
        pinned = [f"{name}=={_public(version(name))}" for name in ("torch", "torchvision", "numpy")]
        command = [str(folder / peer / "bin" / "python"), "-m", "pip", "install", "-q", *pinned, *packages]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"{peer} could not be installed into {folder / peer}: {last}")
        say(f"{peer}: installed")


def _public(text: str) -> str:
    return text.partition("+")[0]
