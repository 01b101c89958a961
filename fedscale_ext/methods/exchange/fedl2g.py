"""FedL2G (Zhang et al. 2024, arXiv 2410.06490): the server learns vectors that guide clients to less loss of their own.

There is a guiding vector for each class. A client minimises cross-entropy plus the mean squared distance of a sample's
features (FedL2G-f) or logits (FedL2G-l) to the vector of its class. After training, it computes how the vectors should
change (``learning_to_guide.py``): it takes one step on study samples, and measures the cross-entropy of samples that it
holds out, the quiz. It sends the gradients of this loss with regard to the vectors of the classes that it studied. The
server averages each class's gradients, each client counting alike, and takes a step.

In the first ``warm_up`` rounds clients send gradients and do not train.

Departures from the paper and the public code:

* The paper's equations were not checked. The losses, the order of a round and the defaults are those of the authors'
  public code and run file.
* The quiz is a share of a client's samples, the same in each round. In the public code, it is as many as a batch.
* Gradients are those of the network in evaluation: its dropout is off, and its BatchNorm uses running statistics.
* The public code clips gradients at norm 100, at clients and the server. Here clients clip by ``clip_norm``.
* Not all clients take part in a round. A class that no participant studied keeps its vector.

Paper to code, section by section: docs/methods/exchange.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.local_steps import hold_out, trained_on
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.method import (
    About,
    Bench,
    ClientConfig,
    ClientSamples,
    Count,
    CountOrZero,
    ModelSpec,
    Population,
    Positive,
    PositiveFraction,
    State,
    Task,
    Update,
    WorkItem,
    stream,
)
from fedscale_ext.methods.exchange.class_vectors import VECTORS, GuidedClient
from fedscale_ext.methods.exchange.client import COUNTS
from fedscale_ext.methods.exchange.learning_to_guide import guiding_gradients
from fedscale_ext.methods.exchange.tensor_exchange import FeaturesParams, SharedFeaturesAggregator
from fedscale_ext.models.layers.final_layer import deepest, final_layer
from fedscale_ext.training.outcome import result
from fedscale_ext.training.resident import Cohort

GRADIENTS = "gradients"  # sent: one for each class, [classes, F]
_LR = {"features": 100.0, "logits": 0.1}  # of the server: the authors' run file


class FedL2GClient(GuidedClient):
    """Client that learns towards guiding vectors, and sends the gradients of its quiz."""

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        if conf.objective.get("guide") == "logits":
            self.tap = None

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy; of guided logits, with the distance to the vector of the sample's class, [...]."""
        losses = super().losses(output, labels)
        if self.tap is not None:
            return losses
        logits = deepest(output, labels.dim() + 1)
        return self.guided(losses, logits, labels, logits.shape[-1])

    def tensors_to_send(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State:
        """The gradients [classes, F] of the quiz, and the study samples of each class."""
        study, quiz = self._parts(data, conf)
        weight = model.get_submodule(self.layer).weight
        assert isinstance(weight, Tensor)
        vectors, _ = self.vectors(len(weight), weight.detach())
        gradients = guiding_gradients(model.eval(), self.tap, study, quiz, vectors, conf.learning_rate)
        return {
            GRADIENTS: gradients.float().cpu(),
            COUNTS: torch.bincount(study.y.cpu(), minlength=len(vectors)).int(),
        }

    def _parts(self, data: ClientSamples, conf: ClientConfig) -> tuple[ClientSamples, ClientSamples]:
        """Study and quiz samples; a client of one sample has it in both."""
        rows, quiz = hold_out(len(data), conf.held_out, conf.seed, conf.client_id)
        rng = stream(conf.seed, conf.round, conf.client_id, "study")
        study = rng.permutation(rows)[: int(conf.objective["study"])]
        drawn = (torch.from_numpy(part).to(data.y.device) for part in (study, quiz if len(quiz) else rows))
        first, second = (ClientSamples(data.x[part], data.y[part]) for part in drawn)
        return first, second

    # ---- rounds without training ----

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train and send gradients; in rounds of warming up, only send them."""
        if not conf.objective.get("warm_up"):
            return super().train(client_data, model, conf)
        self.begin(model, conf)
        return {**self._warm(client_data, model, conf), "update_weight": model.state_dict()}

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[ClientConfig]
    ) -> list[dict[str, Any] | Exception]:
        """Train a cohort; in rounds of warming up, each client sends only gradients."""
        if not confs[0].objective.get("warm_up"):
            return super().train_cohort(data, cohort, confs)
        results: list[dict[str, Any] | Exception] = []
        for row, (samples, conf) in enumerate(zip(data, confs, strict=True)):
            model = self.bench.module(conf.model_key)
            self.begin(model, conf)
            cohort.set_start(row, model.state_dict())
            try:
                results.append(self._warm(samples, model, conf))
            except FloatingPointError as error:
                results.append(error)
        return results

    def _warm(self, data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """The result of a client that does not train: the loss is that of its study samples."""
        study, _ = self._parts(data, conf)
        with torch.no_grad():
            losses = functional.cross_entropy(deepest(model.eval()(study.x), 2), study.y, reduction="none")
        return self.completed_result(result(conf, len(data), [losses.cpu()]), model, data, conf)


@dataclass(frozen=True)
class FedL2GParams(FeaturesParams):
    """Hyperparameters of FedL2G.

    Attributes:
        guide: What the vectors guide: `features` (FedL2G-f) or `logits` (FedL2G-l), which need no common width.
        study: Samples of a client's step before the quiz.
        quiz: Share of a client's samples that it holds out for the quiz and does not train on.
        warm_up: Rounds at first in which clients send gradients and do not train.
        lr: Learning rate of the server's SGD. By default, 100 for features and 0.1 for logits.

    """

    guide: Literal["features", "logits"] = "features"
    study: Count = 10
    quiz: PositiveFraction = 0.2
    warm_up: CountOrZero = 50
    lr: Positive | None = None

    method: ClassVar[str] = "fedl2g"


class FedL2GAggregator(SharedFeaturesAggregator):
    """Clients keep models of any architecture and learn towards vectors that lower their own losses (FedL2G)."""

    about: ClassVar[About] = About("exchange", 2024)
    Params: ClassVar[type] = FedL2GParams
    Client: ClassVar[type] = FedL2GClient

    def common_width(self, specs: Sequence[ModelSpec]) -> int:
        """The width of what is guided."""
        return super().common_width(specs) if self.params.guide == "features" else self.task.num_classes

    def init_state(self, population: Population, task: Task) -> None:
        """Draw the guiding vectors."""
        super().init_state(population, task)
        self.vectors = torch.randn(task.num_classes, self.width, generator=torch_stream(self.seed, "vectors"))
        if self.args.rounds <= self.params.warm_up:
            self.notice(
                f"no client trains in this job: fedl2g.warm_up is {self.params.warm_up}, and rounds are no more"
            )

    def template(self, spec: ModelSpec) -> State:
        """Gradients of all classes, and the client's study samples of each."""
        classes = spec["num_classes"]
        width = final_layer(spec).width if self.params.guide == "features" else classes
        return {GRADIENTS: torch.zeros(classes, width), COUNTS: torch.zeros(classes, dtype=torch.int32)}

    def message(self) -> State:
        """The guiding vectors."""
        return {VECTORS: self.vectors}

    @property
    def warms_up(self) -> bool:
        """Whether clients do not train in the coming round."""
        return len(self.history) < self.params.warm_up

    def objective(self) -> dict[str, Any]:
        """What is guided, the number of study samples, and whether clients train."""
        p = self.params
        return {"weight": 1.0, "guide": p.guide, "study": p.study, "warm_up": self.warms_up}

    def test_objective(self) -> Mapping[str, Any]:
        """In tests, clients that fine-tune their models do train."""
        return {**self.objective(), "warm_up": False}

    def overrides(self) -> dict[str, Any]:
        """Hold the quiz out; a round of warming up has one step, of the study samples."""
        steps = {"local_steps": 1, "batch_size": self.params.study} if self.warms_up else {}
        return {"held_out": self.params.quiz, **steps}

    def counted(self, item: WorkItem) -> int:
        """The number of a client's study samples."""
        return min(self.params.study, trained_on(int(self.task.train_sizes[item.client - 1]), self.params.quiz))

    def work_beside(self, client: int) -> float:
        """A step on study samples, and the gradient of the quiz."""
        samples = int(self.task.train_sizes[client - 1])
        quiz = max(samples - trained_on(samples, self.params.quiz), 1)
        return float(self._study(client) + quiz)

    def passes_beside(self, client: int) -> float:
        """The derivative of the study samples' features, which costs what two forward passes do."""
        return 2.0 * self._study(client)

    def _study(self, client: int) -> int:
        return self.counted(WorkItem(client, ""))

    def item_of(self, client: int) -> WorkItem:
        """Let a client train the model that it keeps, but not in rounds of warming up."""
        item = super().item_of(client)
        if not self.warms_up:
            return item
        return replace(item, compute_fraction=item.compute_fraction - 1.0, trains=False)

    def learn(self, round: int, updates: Sequence[Update], sent: Sequence[State]) -> None:
        """Step along the mean of each class's gradients, over the clients that studied the class."""
        p = self.params
        there = torch.stack([each[COUNTS] > 0 for each in sent])
        total = torch.stack([each[GRADIENTS].double() for each in sent]).mul(there[..., None]).sum(0)
        mean = total / there.sum(0).clamp(min=1)[:, None]
        new = (self.vectors.double() - (p.lr or _LR[p.guide]) * mean).float()
        if not bool(torch.isfinite(new).all()):
            self.notice(f"round {round}: the guiding vectors diverged and are as before; lower fedl2g.lr")
            return
        self.vectors = new
        self.record("gradient_norm", float(mean.norm()))

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return the guiding vectors."""
        return {"vectors": self.vectors}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.vectors = tensors["vectors"]
        self.publish()
