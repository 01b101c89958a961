"""FedKD (Wu et al., Nature Communications 2022): mentors stay with clients, and a mentee's compressed updates travel.

A client keeps a mentor, a model of its own, and trains a copy of the mentee, a small model that clients share. Both
learn from the same batches (:class:`FedKDClient`), with L = CE(mentor) + CE(mentee), the sum of their task losses:

* task losses: cross-entropy of each;
* adaptive mutual distillation: KL(mentee || mentor) / L and KL(mentor || mentee) / L;
* adaptive hidden losses: the mean squared difference of the mentor's features and a learned linear map of the
  mentee's, divided by L, for each of both.

A client sends its mentee's change by its largest singular components, as many as have a share T(t) of the squared
singular values (``low_rank.py``). T rises linearly with the round t, from ``start_energy`` to ``end_energy`` in the
last one. The server averages the changes and sends the mean compressed in the same way.

Departures from the paper and the public code:

* Features are the inputs of the last linear layers. The paper's models are transformers: it compares hidden states,
  and attention maps, too, which other models lack. The public code compares them without a linear map.
* L is the mean over the batch, and gradients pass through it and through both sides of each loss, as in the public
  code. Whether the paper means them to was not checked.
* KL is the sum over classes and the mean over samples. The public code also divides by the number of classes.
* A convolution's weight counts as a matrix [O, I kh kw]. A matrix whose factors would take more bytes than itself is
  sent whole. The public code always sends factors; its models have matrices only.
* The share of T is reached, not exceeded. A change of zero takes no factors.
* The mean of changes is weighted by samples. The public code weights all clients alike.
* BatchNorm statistics and vectors travel whole.
* Not all clients take part in a round. A client downloads what the mentee's updates have taken since its last update
  that counted, or the whole mentee where that is less. Its first download is the whole mentee.

Paper to code, section by section: docs/methods/exchange.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedscale_ext.method import (
    About,
    Bench,
    ClientConfig,
    ClientSamples,
    ClientTensors,
    Population,
    PositiveFraction,
    State,
    Task,
    Update,
    WorkItem,
)
from fedscale_ext.methods.distillation.losses import divergence, hard_cross_entropy
from fedscale_ext.methods.exchange.low_rank import WHOLE, compressed, largest_ranks, matrices, num_bytes
from fedscale_ext.methods.exchange.mutual import (
    SHARED_MODEL,
    MutualAggregator,
    MutualClient,
    MutualParams,
    shared_part,
)
from fedscale_ext.methods.exchange.tensor_exchange import SentTensors
from fedscale_ext.methods.personal.personal_models import copied, load_tensors
from fedscale_ext.models.families.network_pair import FEATURES, SHARED
from fedscale_ext.tasks.answers.update_checks import Rejected
from fedscale_ext.training.resident import Cohort
from fedscale_ext.transport import wire

RANKS = "ranks"  # name of what a client reports: the rank of each matrix of its mentee's change


class FedKDClient(MutualClient):
    """Client whose mentor and mentee teach each other, and which sends its mentee's change compressed."""

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._received: State = {}  # the mentee before training
        self._uploads: dict[int, State] = {}  # by client: the tensors of its mentee as the server gets them

    # ---- losses ----

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """All losses of both models [...], from logits and the error of features [..., 3, classes]."""
        error = output[..., 2, :].gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        tasks = _task_losses(output[..., 1, :], output[..., 0, :], labels)
        return super().losses(output, labels) + 2 * error / self._batch_mean(tasks)

    def pair_losses(self, own: Tensor, shared: Tensor, labels: Tensor) -> Tensor:
        """Task losses and adaptive mutual distillation of each sample, [...]."""
        tasks = _task_losses(own, shared, labels)
        return tasks + (divergence(own, shared) + divergence(shared, own)) / self._batch_mean(tasks)

    def _batch_mean(self, losses: Tensor) -> Tensor:
        """The mean of each client's batch [..., 1], from losses [..., B]; padded rows are left out."""
        if self.is_sample is None:
            return losses.mean(-1, keepdim=True)
        total = torch.where(self.is_sample, losses, 0.0).sum(-1, keepdim=True)
        return total / self.is_sample.sum(-1, keepdim=True)

    # ---- what it sends ----

    def begin(self, model: nn.Module, conf: ClientConfig) -> None:
        """Remember the mentee as it was sent."""
        self._received = copied(shared_part(model.state_dict()))
        super().begin(model, conf)

    def prepare_cohort(self, cohort: Cohort, confs: Sequence[ClientConfig]) -> dict[int, Exception]:
        """Remember the mentee as it was sent to the cohort."""
        self._received = copied(shared_part(self.bench.module(confs[0].model_key).state_dict()))
        return super().prepare_cohort(cohort, confs)

    def tensors_to_send(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State:
        """The ranks of the mentee's compressed change; ``model`` has the mentee then as the server gets it."""
        mentee, ranks = compressed(self._received, shared_part(model.state_dict()), float(conf.objective["energy"]))
        upload = {SHARED + name: mentee[name] for name in matrices(mentee)}
        load_tensors(model, upload)
        self._uploads[conf.client_id] = upload
        return {RANKS: ranks}

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[ClientConfig]
    ) -> list[dict[str, Any] | Exception]:
        """Train a cohort, and leave in it what each client sends."""
        results = super().train_cohort(data, cohort, confs)
        for row, conf in enumerate(confs):
            for name, tensor in self._uploads.get(conf.client_id, {}).items():
                cohort.tensors[name][row].copy_(tensor)
        return results


def _task_losses(own: Tensor, shared: Tensor, labels: Tensor) -> Tensor:
    """The sum of both models' cross-entropy with each label, [...]."""
    return hard_cross_entropy(own, labels) + hard_cross_entropy(shared, labels)


@dataclass(frozen=True)
class FedKDParams(MutualParams):
    """Hyperparameters of FedKD.

    The job's ``model`` is the mentee, which clients share. ``types`` are their mentors. The share rises over the job's
    ``rounds``, so a job cannot be resumed with more of them, unless both shares are equal.

    Attributes:
        start_energy: Share T_start of the squared singular values that updates keep when training begins.
        end_energy: Share T_end that they keep in the last round, or when ``stop_macs`` is spent.

    """

    start_energy: PositiveFraction = 0.95
    end_energy: PositiveFraction = 0.98

    method: ClassVar[str] = "fedkd"

    def follows_rounds(self, rounds: int) -> str:
        """Return the schedule of the share, where it is not constant."""
        return "the share of fedkd.end_energy" if self.start_energy != self.end_energy else ""


class SentRanks(SentTensors):
    """Ranks that the round's clients report, from which follows how many bytes each client sent last.

    Args:
        task: Sizes of the clients' data.
        keys: Keys of the types.
        mentee: The shared model's tensors.

    """

    def __init__(self, task: Task, keys: Sequence[str], mentee: State) -> None:
        self._mentee, self._most = mentee, largest_ranks(mentee)
        templates = {key: {RANKS: torch.zeros_like(self._most)} for key in keys}
        super().__init__(task, templates, lambda item: 0)  # it counts no samples by class

    def checked(self, item: WorkItem, section: wire.Section | None) -> State:  # noqa: D102
        new = super().checked(item, section)
        if not bool(((new[RANKS] >= WHOLE) & (new[RANKS] <= self._most)).all()):
            raise Rejected("its ranks are not those of its tensors")
        return new

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        super().take(round, item, new)
        self.num_bytes[item.client - 1] = num_bytes(self._mentee, new[RANKS])

    def upload_bytes(self, item: WorkItem) -> int:
        """Return the bytes that a client sent last; at first those of the whole mentee."""
        last = int(self.num_bytes[item.client - 1])
        return num_bytes(self._mentee, torch.full_like(self._most, WHOLE)) if last < 0 else last


class FedKDAggregator(MutualAggregator):
    """Clients keep mentors of any architecture and share compressed updates of a small mentee (FedKD).

    ``update_bytes``: of the server's update of the mentee in each round. ``num_received`` int64 [clients]: how many of
    these each client has; -1: it has no mentee yet.
    """

    about: ClassVar[About] = About("exchange", 2022)
    Params: ClassVar[type] = FedKDParams
    Client: ClassVar[type] = FedKDClient
    joined: ClassVar[str] = FEATURES

    def init_state(self, population: Population, task: Task) -> None:
        """Create the mentee, and a pair with it for each type."""
        self.update_bytes: list[int] = []
        self.num_received = torch.full((task.num_clients,), -1)
        super().init_state(population, task)

    def client_tensors(self) -> list[ClientTensors]:
        """Keep each client's mentor, and hear the ranks of its update."""
        self.sent_tensors = SentRanks(self.task, self.keys, self.pool[SHARED_MODEL].state)
        return [*super().client_tensors(), self.sent_tensors]

    def energy(self, round: int) -> float:
        """Return the share T of the squared singular values that updates keep in a round."""
        p, progress = self.params, max(min(round / self.args.rounds, 1.0), self.spent_share())
        return float(p.start_energy + (p.end_energy - p.start_energy) * progress)

    def objective(self) -> dict[str, Any]:
        """The share that the coming round's updates keep."""
        return {"energy": self.energy(len(self.history) + 1)}

    def item_of(self, client: int) -> WorkItem:
        """Let a client train the pair of its type; what it lacks of the mentee travels."""
        item, received = super().item_of(client), int(self.num_received[client - 1])
        if received < 0:
            return item
        whole = self.pool[SHARED_MODEL].cost.bytes
        return replace(item, bytes=min(whole, sum(self.update_bytes[received:])))

    def upload_bytes(self, item: WorkItem) -> int:
        """Bytes that a client sends; in a round's record those that it has sent."""
        return self.sent_tensors.upload_bytes(item)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Change the mentee by the compressed mean of the participants' changes."""
        mentee, energy = self.pool[SHARED_MODEL].state, self.energy(round)
        new, ranks = compressed(mentee, self.shared_mean(updates, means), energy)
        for update in updates:
            self.num_received[update.client - 1] = len(self.update_bytes)
        self.update_bytes.append(num_bytes(mentee, ranks))
        self.share(new)
        self.record("energy", energy)
        self.record("update_bytes", self.update_bytes[-1])

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return what the server's updates took, and which clients have them."""
        return {"held": self.num_received}, {"update_bytes": self.update_bytes}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.num_received, self.update_bytes = tensors["held"].clone(), list(data["update_bytes"])
