"""pfl-research: its federated averaging on its simulated backend, two processes by torchrun, evaluation off.

It averages parameters only; BatchNorm's running statistics stay in each process.
"""

import os
from types import MethodType

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from evals.speed.task import BATCH, CLIENTS, RATE, Spans, task
from evals.speed.workload import checksum, module, samples

WARM_UP = 1


class Clock(TrainingProcessCallback):
    """Notes when central iterations begin and end."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.spans.begin()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.spans.end()
        self.spans.begin()
        return False, Metrics()


def loss(self: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(self(x), y)


def metrics(self: nn.Module, x: Tensor, y: Tensor) -> dict[str, Weighted]:
    return {"loss": Weighted(float(functional.cross_entropy(self(x), y, reduction="sum")), len(y))}


def main() -> None:
    asked = task()
    torch.set_num_threads(1)
    x, y = map(torch.from_numpy, samples(asked.data))
    network = module(asked.model, usual=True)
    network.loss, network.metrics = MethodType(loss, network), MethodType(metrics, network)
    spans = Spans()
    users = FederatedDataset(
        lambda user: Dataset(raw_data=[x[user], y[user]], user_id=str(user)),
        get_user_sampler("minimize_reuse", list(range(CLIENTS))),
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=asked.rounds + WARM_UP,
            evaluation_frequency=10**9,
            train_cohort_size=CLIENTS,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(users, users),
        model=PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(local_learning_rate=RATE, local_num_epochs=1, local_batch_size=BATCH),
        callbacks=[Clock(spans)],
        send_metrics_to_platform=False,
    )
    if int(os.environ.get("RANK", 0)) == 0:
        spans.write(asked.out, warm_up=WARM_UP, checksum=checksum(network.parameters()))


if __name__ == "__main__":
    main()
