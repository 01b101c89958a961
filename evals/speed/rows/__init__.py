"""The rows of the comparison: what each is called, which environment it needs and how its script is started."""

from dataclasses import dataclass
from pathlib import Path

from evals.speed.peers import python_of

_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")


@dataclass(frozen=True)
class Row:
    """``peer``: environment of `--install-peers` that it runs in, None for this one; ``note`` for the table."""

    name: str
    title: str
    script: str
    peer: str | None = None
    launcher: tuple[str, ...] = ()
    note: str = ""

    def command(self, peers: Path, arguments: list[str]) -> list[str] | None:
        """The command line of one measurement; None where its environment is not installed."""
        python = python_of(self.peer, peers)
        return python and [str(python), *self.launcher, "-m", f"evals.speed.rows.{self.script}", *arguments]


ROWS = {
    row.name: row
    for row in (
        Row("ours", "our whole job, 2 executors", "ours", note="`fedscale driver start`; wall_s of metrics.jsonl"),
        Row("limit", "limit, 2 processes", "limit", note="best recipe known for one client after another, no job"),
        Row("tight", "plain loop, 2 processes", "tight", note="one client after another, no job around it"),
        Row(
            "pfl", "pfl-research, 2 processes", "pfl", "pfl", _TORCHRUN,
            "SimulatedBackend under torchrun; averages parameters only, not BatchNorm's statistics",
        ),
        Row("flower", "Flower, 2 actors", "flower", "flower", note="run_simulation on Ray, one CPU per actor"),
        Row(
            "fedscale", "upstream FedScale 1.0, 2 executors", "upstream", "fedscale", (),
            "the unmodified wheel's aggregator.py and executor.py, one thread each, num_loaders 0; it decodes PNG "
            "files and has momentum and weight decay built in",
        ),
    )
}  # fmt: skip
