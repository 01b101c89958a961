"""Figure 13: heterogeneity of the data (claim F18)."""

from dataclasses import replace

from evals.fedtrans.arms import fedtrans
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment

_H = (0.1, 0.5, 1, 10, 100)
EXPERIMENT = Experiment(
    "fig13",
    "Figure 13: heterogeneity of the data (Dirichlet h)",
    [replace(fedtrans(f"femnist-h{h:g}"), label=f"h = {h:g}", x=h) for h in _H],
    plot=plots.sweep("h of the Dirichlet partition", log=True),
    note="The samples of all writers are dealt anew by Dirichlet(h); a lower h is a higher heterogeneity.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
