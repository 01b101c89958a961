"""Writes the configurations of this folder and its README.md (readme_page.py) from tables of sizes, data sets and
methods: those of FedTrans, HypeMeFed, FedorAS and Moss in a file each, what FedorAS is measured against (and FedorAS on
text) in search_tables.py.

    python benchmark_configs/make.py

Change the tables, never the files that they make; tests/test_benchmark_configs.py compares. quickstart.yml alone is
written by hand.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fedoras_tables
import fedtrans_tables
import hypemefed_tables
import moss_tables
import search_tables
from readme_page import readme

HERE = Path(__file__).resolve().parent
TABLES = (fedtrans_tables, hypemefed_tables, fedoras_tables, search_tables, moss_tables)

_MACHINES = """\
# ---- machines: aggregator, and host:[executors on GPU 0, executors on GPU 1, ...] ----
ps_ip: 127.0.0.1
worker_ips:
  - localhost:[2]
exp_path: fedscale_ext
aggregator_entry: entry/aggregator.py
executor_entry: entry/executor.py
auth:
  ssh_user: ""
setup_commands:

# ---- the job; docs/configuration.md lists the keys beside FedScale's own ----
job_conf:
"""


def _text(value: Any) -> str:
    # PyYAML, and FedScale's driver with it, takes 1e-08 for text: YAML 1.1 wants the point
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return repr(value).replace("e", ".0e")
    return str(value)


def files() -> dict[str, str]:
    """Every configuration's name (without .yml) and text."""
    made = {}
    for tables in TABLES:
        for name, (top, job) in tables.jobs().items():
            made[name] = top + "\n" + _MACHINES + _lines(job)
    return made


def _lines(job: Mapping[str, Any]) -> str:
    return "".join(f"  - {key}: {_text(value)}\n" for key, value in job.items())


def main() -> None:
    """Write the files."""
    made = files()
    for name, text in made.items():
        (HERE / f"{name}.yml").write_text(text, encoding="utf-8")
    (HERE / "README.md").write_text(readme(made), encoding="utf-8")


if __name__ == "__main__":
    main()
