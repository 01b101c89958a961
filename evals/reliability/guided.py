"""Coverage-guided fuzzing of the pure-Python readers: headers of the wire, pickled traces, csv files.

    pip install atheris                                                 # Linux, Python 3.11 to 3.13; not a dependency
    nice -n 19 python evals/reliability/guided.py header -max_total_time=300
    nice -n 19 python evals/reliability/guided.py trace FOLDER          # FOLDER keeps what reached new code

Further arguments are libFuzzer's. It ends at the first input that a reader does not refuse in its own words.
"""

import contextlib
import logging
import sys
import tempfile
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["fedscale_ext", "json", "csv", "pickletools"]):
    from fedscale_ext.core.errors import UserError
    from fedscale_ext.data.layout.sample_csv import read_sample_csv
    from fedscale_ext.population.traces.reading import read_availability, read_capacity
    from fedscale_ext.transport import wire


def header(data: bytes) -> None:
    """The bytes are a header whose length is right."""
    with contextlib.suppress(wire.WireError):
        wire.unpack(b"FSX" + wire.VERSION + len(data).to_bytes(4, "little") + data)


def trace(data: bytes) -> None:
    """The bytes are a pickled capacity and a pickled availability trace."""
    _file("trace", data)
    for read in (read_capacity, read_availability):
        with contextlib.suppress(UserError):
            read(_FOLDER / "trace")


def csv(data: bytes) -> None:
    """The bytes are a csv of each kind."""
    _file("file.csv", data)
    path = _FOLDER / "file.csv"
    for read in (read_capacity, read_availability, lambda path: read_sample_csv(path, _FOLDER, 10)):
        with contextlib.suppress(UserError):
            read(path)


def _file(name: str, data: bytes) -> None:
    (_FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    targets = {"header": header, "trace": trace, "csv": csv}
    if len(sys.argv) < 2 or sys.argv[1] not in targets:
        sys.exit(f"{__doc__}\nfirst argument: {', '.join(targets)}")
    shm = Path("/dev/shm")
    _FOLDER = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    atheris.Setup([sys.argv[0], *sys.argv[2:]], targets[sys.argv[1]])
    atheris.Fuzz()
