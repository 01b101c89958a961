"""FedGen (Zhu et al., ICML 2021): the server trains a generator of features, from which clients' heads learn, too.

Clients keep bodies of any architecture. They send their heads, the last layers, and their numbers of samples by class.
The server averages heads by samples, and trains a generator G of features from classes and noise: classes y are drawn
as often as clients have them, and the heads' mean output for G(y, noise) shall be y (``generator.py``). Clients begin
with the mean head. They minimise the cross-entropy of their samples plus ``weight`` times that of the head's outputs
for generated features.

Departures from the paper and the public code:

* The paper's equations were not checked. The losses are those of HtFLlib's version for models of any architecture, with
  the diversity loss of the authors' code.
* The mean output of linear heads is the output of their mean, by samples. The authors' code weights heads by their
  samples of the class, and sums their losses.
* The authors' code also draws a client's outputs to those for generated features of the same class, and lowers both
  weights in each round. This is left out, as in HtFLlib.
* Noise is Gaussian. In the public codes, it is uniform.
* The generator's Adam begins anew in each round, as in HtFLlib.
* Clients run the generator in evaluation, as in the authors' code: its BatchNorm uses the server's statistics.
* Clients draw as many generated features in a step as it has samples.
* Not all clients take part in a round. Classes are drawn by the samples of the last round's participants.
* The training loss that a job shows is the sum of both losses.

Paper to code, section by section: docs/methods/exchange.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.streams import torch_stream
from fedscale_ext.method import (
    About,
    Bench,
    ClientConfig,
    ClientSamples,
    Count,
    ModelSpec,
    NotNegative,
    Population,
    Positive,
    State,
    Task,
    Update,
    UserError,
)
from fedscale_ext.methods.exchange.client import COUNTS
from fedscale_ext.methods.exchange.generator import (
    Generator,
    drawn_generator,
    drawn_labels,
    loaded_generator,
    trained_generator,
)
from fedscale_ext.methods.exchange.lgfedavg import LGFedAvgAggregator, LGFedAvgClient, LGFedAvgParams
from fedscale_ext.training.resident import Cohort

GENERATOR, LABELS = "generator.", "labels"  # of the message, beside the head: tensors, and samples by class


class FedGenClient(LGFedAvgClient):
    """Client whose head also learns from generated features."""

    taps_features = True

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._weight = float(conf.objective.get("weight", 0.0))
        self._streams: list[torch.Generator] = []  # of the clients that train
        self._generator: Generator | None = None
        if LABELS in self.message:
            state = {name.removeprefix(GENERATOR): self.message[name] for name in self.message if GENERATOR in name}
            self._generator = loaded_generator(state, len(self.message[LABELS]))

    def feature_losses(self, output: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy plus the weighted one of as many generated features, [...]."""
        losses = self.losses(output, labels)
        if self._generator is None or not self._streams:
            return losses
        generated, drawn = self._generated(labels, features)
        logits = self.tapped(generated)
        more = functional.cross_entropy(logits.flatten(0, -2), drawn.flatten(), reduction="none")
        return losses + self._weight * more.view(labels.shape)

    def _generated(self, labels: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Generated features [..., F] and their classes int64 [...], for the batch of each client, labels [...]."""
        assert self._generator is not None
        clients = labels.view(-1, labels.shape[-1])  # [k, B]
        counts = self.message[LABELS].cpu()
        drawn, noise = torch.zeros_like(clients, device="cpu"), torch.zeros(*clients.shape, self._generator.noise)
        for row, stream in enumerate(self._streams[: len(clients)]):
            rows = clients.shape[1] if self.is_sample is None else int(self.is_sample[row].sum())
            drawn[row, :rows] = drawn_labels(counts, rows, stream)
            noise[row, :rows] = torch.randn(rows, self._generator.noise, generator=stream)
        drawn = drawn.to(labels.device)
        with torch.no_grad():
            features = self._generator.to(like)(noise.flatten(0, 1).to(like), drawn.flatten())
        return features.view(*labels.shape, -1), drawn.view(labels.shape)

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train with generated features of the client's stream."""
        self._streams = _streams([conf])
        return super().train(client_data, model, conf)

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[ClientConfig]
    ) -> list[dict[str, Any] | Exception]:
        """Train a cohort, each client with generated features of its stream."""
        self._streams = _streams(confs)
        return super().train_cohort(data, cohort, confs)

    def tensors_to_send(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State:
        """The head, and the client's samples of each class."""
        head = super().tensors_to_send(model, data, conf)
        return {**head, COUNTS: torch.bincount(data.y.cpu(), minlength=len(head["weight"])).int()}


def _streams(confs: Sequence[ClientConfig]) -> list[torch.Generator]:
    return [torch_stream(conf.seed, conf.round, conf.client_id, "generated") for conf in confs]


@dataclass(frozen=True)
class FedGenParams(LGFedAvgParams):
    """Hyperparameters of FedGen.

    Attributes:
        weight: Weight of generated features in a client's loss.
        noise: Numbers of noise that the generator reads.
        hidden: Width of the generator's hidden layer.
        steps: Steps of the server in a round.
        batch_size: Generated features of a step of the server; at least 2.
        lr: Learning rate of the server's Adam.
        diversity: Weight of the diversity loss. With 0, other noise need not give other features.

    """

    weight: NotNegative = 1.0
    noise: Count = 32
    hidden: Count = 256
    steps: Count = 50
    batch_size: Count = 128
    lr: Positive = 0.0003
    diversity: NotNegative = 1.0

    method: ClassVar[str] = "fedgen"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size == 1:
            raise UserError(f"{self.method}.batch_size is 1; the generator's BatchNorm needs at least 2")


class FedGenAggregator(LGFedAvgAggregator):
    """Clients keep bodies of any architecture; their heads also learn from features that the server generates (FedGen).

    ``counts``: samples of each class of the last round's participants, int64 [classes].
    """

    about: ClassVar[About] = About("exchange", 2021)
    Params: ClassVar[type] = FedGenParams
    Client: ClassVar[type] = FedGenClient
    by_class: ClassVar[bool] = False

    def init_state(self, population: Population, task: Task) -> None:
        """Create models that begin with one head, and draw the generator."""
        self.counts = torch.zeros(task.num_classes, dtype=torch.int64)
        super().init_state(population, task)
        p, generator = self.params, torch_stream(self.seed, "generator")
        self.generator = drawn_generator(p.noise, task.num_classes, p.hidden, self.width, generator)

    def template(self, spec: ModelSpec) -> State:
        """The head, and the client's samples of each class."""
        return {**super().template(spec), COUNTS: torch.zeros(spec["num_classes"], dtype=torch.int32)}

    def message(self) -> State:
        """The head; as soon as it is trained, the generator, and the samples of each class."""
        if not self.counts.any():
            return super().message()
        generator = {GENERATOR + name: tensor for name, tensor in self.generator.items()}
        return {**super().message(), **generator, LABELS: self.counts.int()}

    def objective(self) -> dict[str, Any]:
        """The weight of generated features."""
        return {"weight": self.params.weight}

    def work_beside(self, client: int) -> float:
        """Training of the head, by a generated feature for each sample of a step."""
        return self._generated(client) * self.head["weight"].numel() / self._macs_of(client)

    def passes_beside(self, client: int) -> float:
        """The generator's forward pass for each of these features."""
        generator = loaded_generator(self.generator, self.task.num_classes)
        return self._generated(client) * generator.macs / self._macs_of(client)

    def _generated(self, client: int) -> float:
        return float(self.task.step_sizes(client, {}).sum()) if self.counts.any() else 0.0

    def _macs_of(self, client: int) -> float:
        return float(self.pool[self.keys[self.type_of[client - 1]]].cost.forward_macs)

    def learn(self, round: int, updates: Sequence[Update], sent: Sequence[State]) -> None:
        """Average the heads by samples, and train the generator on the mean."""
        super().learn(round, updates, sent)
        p, counts = self.params, torch.stack([each[COUNTS] for each in sent]).sum(0)
        how = {"steps": p.steps, "batch_size": p.batch_size, "lr": p.lr, "diversity": p.diversity}
        try:
            generator = torch_stream(self.seed, round, "generator")
            self.generator = trained_generator(self.generator, self.head, counts, generator=generator, **how)
        except FloatingPointError as error:
            self.notice(f"round {round}: {error}, and it is as before; lower fedgen.lr")
            return
        self.counts = counts

    def server_bytes(self) -> int:
        """Bytes of the generator."""
        return sum(tensor.nbytes for tensor in self.generator.values())

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return the head, the generator, and the samples of each class."""
        generator = {GENERATOR + name: tensor for name, tensor in self.generator.items()}
        return {**super().state()[0], **generator, LABELS: self.counts}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.generator = {name: tensors[GENERATOR + name] for name in self.generator}
        self.counts = tensors[LABELS]
        super().load_state({name: tensors[name] for name in self.head}, data)
