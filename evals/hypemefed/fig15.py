"""Figure 15: latency of a round by kind of device, as a simulation by the traces of FedScale."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from evals.hypemefed.arms import GLOBAL, HYPEMEFED, LARGEST, SMALLEST, baseline, hypemefed
from evals.hypemefed.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment, Run
from evals.paper.jobs import summary
from evals.paper.orders import Order

WEAK, MODERATE, AMPLE, SERVER = "weak s", "moderate s", "ample s", "server s"
_KINDS = {"exit1": WEAK, "exit2": MODERATE, "exit3": AMPLE}
_ACCURACY = "below FedAvg-L, pp"


def latencies(runs: Sequence[Run]) -> list[Run]:
    """Each run with its devices' mean seconds per round on the virtual clock, by HypeMeFed's level of them, and the
    server's measured ones."""
    served = {(run.data, run.seed): summary(run.log_dir)["accuracy"]["served"]
              for run in runs if run.arm.label == HYPEMEFED and run.log_dir}  # fmt: skip
    best = {(run.data, run.seed): run.figures[GLOBAL] for run in runs if run.arm.label == LARGEST}
    rows = []
    for run in runs:
        where = (run.data, run.seed)
        if where not in served or run.log_dir is None:
            continue
        seconds: dict[str, list[float]] = defaultdict(list)
        for line in (run.log_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            seconds[SERVER].append(one["seconds"].get("aggregate", 0.0))
            parts = one["client_computation_s"], one["client_communication_s"]
            for client, *both in zip(one["participants"], *parts, strict=True):
                seconds[_KINDS[served[where][client - 1]]].append(sum(both))
        means = {name: fmean(values) for name, values in seconds.items()}
        if where in best:
            means[_ACCURACY] = best[where] - run.figures[GLOBAL]
        rows.append(replace(run, figures={**run.figures, **means}))
    return rows


EXPERIMENT = Experiment(
    "fig15",
    "Figure 15: latency of a round (simulated)",
    [
        baseline(LARGEST, paper={_ACCURACY: 0}),
        baseline(SMALLEST, paper={_ACCURACY: 20.41}),
        hypemefed(paper={_ACCURACY: 15.28, SERVER: 2.1}),
        hypemefed("HypeMeFed, naive hypernetwork", paper={SERVER: 3.9}, variant="naive"),
    ],
    (WEAK, MODERATE, AMPLE, "round s", SERVER, GLOBAL, _ACCURACY),
    plots.columns(WEAK, MODERATE, AMPLE, SERVER, ylabel="seconds per round"),
    note="The paper has twelve boards of three kinds. Here devices of FedScale's traces compute and send on the "
    "virtual clock, in thirds by what they afford. The server's seconds are measured. The traces' time per sample "
    "is taken for that of a network as large as the paper's (`reference_macs`).",
    rows=latencies,
    orders=[Order(WEAK, LARGEST, HYPEMEFED), Order("round s", LARGEST, HYPEMEFED), Order(GLOBAL, HYPEMEFED, SMALLEST)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
