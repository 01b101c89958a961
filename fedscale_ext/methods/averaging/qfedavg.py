"""q-FedAvg (Li et al., ICLR 2020, Algorithm 2): FedAvg that gives more weight to clients with a higher loss.

It minimises f_q(w) = sum_k p_k / (q + 1) F_k(w)^(q+1) (Eq 2).

Departures from the paper:

* Algorithm 2 draws clients with probability p_k = n_k / n and then counts all alike. Here they are drawn
  evenly, so that p_k weighs them in both sums; with q = 0 this is FedAvg.
* The paper's clients have no momentum. Where they have, a change is longer than the rate times the sum of its
  gradients, and the default of ``L`` is as much smaller.
* Powers of losses are taken of losses in units of the largest one where they would not fit into doubles.
* Only parameters are trained. BatchNorm's running statistics take the clients' mean, as with the other servers.

Paper to code, section by section: docs/methods/averaging.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.method import (
    GLOBAL,
    About,
    ClientConfig,
    ClientSamples,
    Cohort,
    CountMean,
    Excludes,
    Feature,
    JobConfig,
    MultiModelClient,
    Positive,
    Range,
    State,
    Update,
    WorkItem,
    models,
)
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.training.scaffold import coefficient_sum

_ORDINARY = 300.0  # largest logarithm of a loss to the power of q with which doubles are sure to add up well
_LEAST = 1e-10  # added to a loss, as in the authors' code, so that 0^(q - 1) is a number


@dataclass(frozen=True)
class QFedAvgParams:
    """Hyperparameters of q-FedAvg.

    Attributes:
        q: Fairness: 0 is FedAvg, and large values count only the worst clients. The paper takes 0.001 to 5, and 1 for
            two of its four data sets. The default is FedScale's ``qfed_q``.
        L: Lipschitz constant of the gradients. By default, it is 1 / the round's client learning rate, as in the paper.
            With momentum, it is divided by the factor by which momentum lengthens a client's change.

    """

    q: Annotated[float, Range(0, 100)] = 1.0
    L: Positive | None = None

    @staticmethod
    def job_defaults(config: JobConfig) -> dict[str, Any]:
        """Take FedScale's key ``qfed_q`` as the default of q."""
        return {"q": config.fedscale.qfed_q}


class QFedAvgClient(MultiModelClient):
    """Client that reports F_k(w^t) as its loss: that of the served model on all its training samples.

    The model is measured as it is served, in evaluation mode.
    """

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Measure the loss of the served model, then train as FedAvg does."""
        loss = self._loss(model, client_data, conf.test_bsz)
        return {**super().train(client_data, model, conf), "moving_loss": loss}

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[ClientConfig]
    ) -> list[dict[str, Any] | Exception]:
        """Train clients side by side. All start from one model, which measures each client's loss."""
        model = self.bench.module(confs[0].model_key)
        losses = [self._loss(model, samples, conf.test_bsz) for samples, conf in zip(data, confs, strict=True)]
        results = super().train_cohort(data, cohort, confs)
        return [
            one if isinstance(one, Exception) else {**one, "moving_loss": loss}
            for one, loss in zip(results, losses, strict=True)
        ]

    @torch.no_grad()
    def _loss(self, model: nn.Module, data: ClientSamples, batch: int) -> float:
        model.eval()
        parts = [
            self.losses(model(x), y).double().sum()
            for x, y in zip(data.x.split(batch), data.y.split(batch), strict=True)
        ]
        return float(torch.stack(parts).sum()) / len(data)


class QFedAvgAggregator(FedAvgAggregator):
    """FedAvg that gives more weight to clients with a higher loss (q-FedAvg).

    Algorithm 2: w^{t+1} = w^t - sum_k p_k Delta_k / sum_k p_k h_k, with Delta_k = F_k^q L (w^t - w_k) and
    h_k = q F_k^(q-1) ||L (w^t - w_k)||^2 + L F_k^q.
    """

    about: ClassVar[About] = About("one model", 2020)
    Params: ClassVar[type] = QFedAvgParams
    Client: ClassVar[type] = QFedAvgClient
    reduces: ClassVar[bool] = False
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.ADAM, "reads a client's update as a sum of its gradients"),
    )

    _mean: CountMean | None = None  # of this round's clients; their Delta_k / L as weighted by F_k^q
    _h: float = 0.0
    _largest: float = 0.0  # loss of this round's clients
    _unit: float = 1.0  # of losses, before they are raised to the power of q
    _lipschitz: float = 1.0

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each client of S_t train w_t. F_k(w^t) takes a forward pass over all its training samples."""
        items = super().assign(round, participants)
        batches = [self.task.step_sizes(item.client, item.overrides) for item in items]
        self._lipschitz = self.params.L or self._default_lipschitz(round, [len(each) for each in batches])
        sizes = self.task.train_sizes
        return [
            replace(item, forward_fraction=float(sizes[item.client - 1] / each.sum()))
            for item, each in zip(items, batches, strict=True)
        ]

    def _default_lipschitz(self, round: int, steps: Sequence[int]) -> float:
        """1 / the rate, over how much longer momentum makes the change of a client with the mean number of steps."""
        mean = max(1, int(np.mean(steps))) if steps else 1
        longer = coefficient_sum(mean, self.config.job.client_momentum) / mean
        return 1.0 / (self.learning_rate(round) * longer)

    def collect(self, round: int, update: Update, state: State) -> None:
        """Add p_k Delta_k and p_k h_k of a client (Algorithm 2)."""
        model, q = self.pool[GLOBAL], self.params.q
        if self._mean is None:
            self._mean, self._change, self._h = CountMean(model.state), _zeros(model.state, model.spec), 0.0
            self._largest, self._unit = 0.0, 1.0
        lipschitz = self._lipschitz
        share, loss = self.weight(update.item), max(update.loss, 0.0) + _LEAST
        self._measure_by(loss)
        relative, squares = loss / self._unit, 0.0
        for name, total in self._change.items():
            moved = lipschitz * (model.state[name].double() - state[name].double())
            squares += float(moved.square().sum())
            total.add_(moved, alpha=share * relative**q)
        self._mean.add(state, None, share)
        self._h += share * (q * relative ** (q - 1.0) / self._unit * squares + lipschitz * relative**q)

    def _measure_by(self, loss: float) -> None:
        """Make the round's largest loss the unit of losses if its power of q is far from 1.

        Powers would otherwise be too large or too small for doubles. The step does not change: the unit divides both of
        its sums by the same number.
        """
        if loss <= self._largest:
            return
        self._largest = loss
        if abs(self.params.q * math.log(loss / self._unit)) <= _ORDINARY:
            return
        smaller = min(1.0, self._unit / loss) ** self.params.q  # only the first client, with empty sums, lowers it
        for total in self._change.values():
            total.mul_(smaller)
        self._h *= smaller
        self._unit = loss

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Step the parameters as in Algorithm 2; buffers take the weighted mean."""
        assert self._mean is not None  # somebody was collected
        model, new = self.pool[GLOBAL], self._mean.result()
        for name, total in self._change.items():
            old = model.state[name]
            new[name] = (old.double() - total / self._h).to(old.dtype)
        self._mean = None
        self.pool.update(GLOBAL, new)


def _zeros(state: State, spec: Any) -> dict[str, Tensor]:
    return {name: torch.zeros_like(state[name], dtype=torch.float64) for name in models.parameter_names(spec)}
