"""What HypeMeFed's paper claims, as the orders that evals/claims.py looks for in this folder's results.

H1 is judged by both measures: the last exit on all test samples, and each client by its own deepest exit (public code).
Other accuracies are the global model's, as a mean over the last quarter of the rounds. Weights of different k come from
different jobs, so that their errors are compared in parts of the trained weights' size (H5). "At least level" (H1) and
"does not help" (H9) are within ``orders.EQUAL``; where the paper says "holds" (H10), HypeMeFed must be above. H6 and H7
come from `hypernetwork_cost`, which trains no job.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from evals.hypemefed.arms import GLOBAL, HYPEMEFED, LARGEST, OWN_EXIT, RIVALS, SMALLEST
from evals.hypemefed.fig3a import NONE, OFF_ON, ON_OFF
from evals.hypemefed.fig3b import ORDERS as SIMILARITIES
from evals.hypemefed.fig10 import CONV, MORE, PERSONAL
from evals.hypemefed.fig12 import ORDERS
from evals.hypemefed.table1 import ALL, COMPONENTS
from evals.paper.ledger import FAILS, HOLDS, OPEN, Claim, Evidence, Finding, Judged
from evals.paper.orders import EQUAL, Order

COST = "hypernetwork_cost"
_ABOVE_SMALLEST = [Order(GLOBAL, HYPEMEFED, SMALLEST)]
_K = [f"k={k}" for k in COMPONENTS if k <= 100]  # small scale has no k = 200
_OLDER = "older code"  # ran before two changes, which discussion.md names; the notes of the tables say so, too
CLAIMS: dict[str, Claim] = {
    "H1": Claim("Global accuracy: FedAvg-L at least level with HypeMeFed, HypeMeFed above FedAvg-S", "fig7",
                [Order(GLOBAL, LARGEST, HYPEMEFED, slack=EQUAL), *_ABOVE_SMALLEST]),
    "H1, own exits": Claim("The same order by each client's deepest exit, as in public code", "fig7",
                           [Order(OWN_EXIT, LARGEST, HYPEMEFED, slack=EQUAL), Order(OWN_EXIT, HYPEMEFED, SMALLEST)]),
    "H2": Claim("HypeMeFed is above HeteroFL, ScaleFL, FedRolex and LotteryFL", "fig7",
                [Order(GLOBAL, HYPEMEFED, rival) for rival in RIVALS]),
    "H3": Claim("Multi-exit networks and hypernetworks each help, most together", "fig3a",
                [Order(GLOBAL, more, less) for more, less in
                 ((ON_OFF, NONE), (OFF_ON, NONE), (HYPEMEFED, ON_OFF), (HYPEMEFED, OFF_ON))]),
    "H4": Claim("Multi-exit networks raise the CKA between depths", "fig3b",
                SIMILARITIES, remark=_OLDER),
    "H5": Claim("Generated weights are nearer trained ones than random, more with larger k", "fig12",
                ORDERS),
    "H6": Claim("k=100 saves at least 98 % of the naive hypernetwork's memory", COST),
    "H7": Claim("k=100 makes hypernetworks at least 1.86 times faster than the naive one", COST),
    "H8": Claim("k from 25 to 100 is within two points of all components", "table1",
                [Order(GLOBAL, k, ALL, slack=2.0) for k in _K], remark=_OLDER),
    "H9": Claim("Generating BatchNorm and exits does not help, and harms personalised accuracy", "fig10",
                [*(Order(GLOBAL, CONV, other, slack=EQUAL) for other in MORE),
                 *(Order(PERSONAL, CONV, other) for other in MORE)]),
    "H10": Claim("HypeMeFed is above FedAvg-S with Dirichlet 0.1, 0.5, 1 and IID", "fig8", _ABOVE_SMALLEST,
                 remark=_OLDER),
    "H11": Claim("HypeMeFed scales to ten exits and to ResNet-18", "fig13", _ABOVE_SMALLEST),
    "H12": Claim("ScaleFL's self-distillation harms convergence", "fig9",
                 [Order(GLOBAL, "ScaleFL", "ScaleFL, self-distillation")]),
}  # fmt: skip


def costs(folder: Path) -> list[Judged]:
    """H6 and H7. Parameters are counted, so that there is no chance in H6; each time of H7 is one measurement, which
    decides nothing."""
    path = folder / f"{COST}.json"
    if not path.is_file():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = {(row["model"], row["label"]): row for row in content["rows"] if row["precision"] == "float32"}
    claims = []
    for name, key, factor, unit in (("H6", "parameters", 1 / 0.02, 4e-6), ("H7", "epoch_cpu_s", 1.86, 1e3)):
        order = Order("MB" if name == "H6" else "ms of processor time per epoch", "naive", "k=100", factor)
        shown: list[Evidence] = []
        for model in dict.fromkeys(model for model, _ in rows):
            naive, small = rows[model, "naive"].get(key), rows[model, "k=100"].get(key)
            if naive is None or small is None:
                continue
            counted = HOLDS if naive >= factor * small else FAILS
            finding = Finding(order, counted if name == "H6" else OPEN, means=(naive * unit, small * unit),
                              reason="" if name == "H6" else "1 measurement", seeds=int(name == "H7"),
                              column=order.column)  # fmt: skip
            shown.append(Evidence(model, [finding], f"{COST}.md", [content["command"]]))
        claims.append(_over_networks(name, shown))
    return claims


def _over_networks(name: str, shown: Sequence[Evidence]) -> Judged:
    verdicts = {one.verdict for one in shown}
    if verdicts in ({HOLDS}, {FAILS}):
        return Judged(name, CLAIMS[name], verdicts.pop(), shown)
    return Judged(name, CLAIMS[name], OPEN, shown, "one measurement" if verdicts == {OPEN} else "networks disagree")
