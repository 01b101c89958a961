"""The limit: the fastest known loop over the clients, in two one-thread processes with nothing around it.

Each client has its own model in memory from the first round to the last. Nothing is sent, counted, or written.
"""

from collections.abc import Callable

import numpy as np
import torch

from evals.speed.kept_models.work import CLIENTS, Work, initial
from evals.speed.rows import loops
from evals.speed.rows.limit import WARM_UP, Limit
from evals.speed.task import PROCESSES, Spans
from fedscale_ext import models


def spans(work: Work) -> Spans:
    """Train all clients in each round, and return when each ran. Process p has clients p, p + PROCESSES, ..."""
    with np.load(work.data / "clients.npz") as arrays:
        x, y = (torch.from_numpy(arrays[name]) for name in ("x_train", "y_train"))

    def share(rank: int) -> Callable[[], None]:
        mine = {client: _trainer(work, client) for client in range(rank, CLIENTS, PROCESSES)}

        def train() -> None:
            for client, trainer in mine.items():
                trainer.train(x[client], y[client])

        return train

    return loops.in_processes(share, work.rounds + WARM_UP, PROCESSES)


def _trainer(work: Work, client: int) -> Limit:
    """Return a client's trainer; the first half of the clients have the first network."""
    spec = work.specs()[client >= CLIENTS // 2]
    model = models.build(spec)
    model.load_state_dict(initial(spec, work.seed))
    return Limit(model)


def main() -> None:
    """Run the rounds, and write what they took."""
    work = Work.asked()
    spans(work).write(work.out, warm_up=WARM_UP)


if __name__ == "__main__":
    main()
