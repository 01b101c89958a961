"""Clients that keep a model and train a small shared one beside it: FML, FedKD, FedMRL.

Only the shared model travels. A client's own model stays with it; here it lies in files of the job's folder. A client
is tested on its own model, and the shared one on all clients' test samples.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from fedscale_ext.core.streams import torch_stream
from fedscale_ext.method import (
    ClientConfig,
    Cost,
    EvaluationPlan,
    Excludes,
    Feature,
    ModelSpec,
    Population,
    State,
    Task,
    Update,
    WorkItem,
    count_mean,
    models,
)
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.personal.personal_models import PersonalModelClient, copied, floating_tensors
from fedscale_ext.methods.personal.personal_server import PersonalModelsAggregator
from fedscale_ext.models.families.network_pair import SHARED, member_specs, pair_spec

SHARED_MODEL = "shared"  # key of the shared model in the pool


@dataclass(frozen=True)
class MutualParams(DeviceTypesParams):
    """Hyperparameters of methods whose clients train a shared model beside their own; the job's ``model`` is shared."""

    needs_public: ClassVar[bool] = False


class MutualClient(PersonalModelClient):
    """Client that trains both models of a pair on the same batches, and keeps its own one."""

    @abstractmethod
    def pair_losses(self, own: Tensor, shared: Tensor, labels: Tensor) -> Tensor:
        """Return the sum of both models' losses of each sample.

        Args:
            own: Logits of the client's own model, [..., classes].
            shared: Logits of the shared model, [..., classes].
            labels: Class numbers, int64 [...].

        Returns:
            The losses [...].

        """

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """The pair's losses [...], from logits [..., 2, classes]."""
        return self.pair_losses(output[..., 1, :], output[..., 0, :], labels)

    def next_client_state(self, model: nn.Module, conf: ClientConfig) -> State:
        """Return the client's own model without the shared one."""
        return copied(personal_part(model.state_dict()))


def personal_part(state: State) -> State:
    """The floating-point tensors of a pair that a client keeps: all but the shared model's."""
    return {name: tensor for name, tensor in floating_tensors(state).items() if not name.startswith(SHARED)}


class MutualAggregator(PersonalModelsAggregator):
    """Base of these methods. The pool has a pair for each type, and the shared model."""

    needs_states: ClassVar[bool] = True  # of which the shared model is averaged
    joined: ClassVar[str] = ""  # how a pair's networks are joined; see ``models/families/network_pair.py``
    excludes: ClassVar[tuple[Excludes, ...]] = (Excludes(Feature.PRIVACY, "serves clients models that they keep"),)

    def type_specs(self) -> dict[str, ModelSpec]:
        """Spec of each type's pair."""
        shared = self.initial_spec()
        return {key: pair_spec(spec, shared, joined=self.joined) for key, spec in super().type_specs().items()}

    def init_state(self, population: Population, task: Task) -> None:
        """Create the shared model, and a pair with it for each type."""
        self.check_key_is_free(SHARED_MODEL, "the shared model")
        super().init_state(population, task)
        spec = self.initial_spec()
        self.share(
            self.pool.add(SHARED_MODEL, spec, models.initial_state(spec, torch_stream(self.seed, SHARED_MODEL))).state
        )

    def share(self, state: State) -> None:
        """Set the shared model of all pairs."""
        self.pool.update(SHARED_MODEL, state)
        for key in self.keys:
            shared = {SHARED + name: tensor for name, tensor in state.items()}
            self.pool.update(key, {**self.pool[key].state, **shared})

    def smallest_cost(self) -> Cost:
        """Training the smallest pair, and exchanging the shared model."""
        cost = super().smallest_cost()
        return Cost(cost.forward_macs, cost.training_macs, cost.parameters, models.cost(self.initial_spec()).bytes)

    def personal_state(self, key: str) -> State:
        """The tensors of a type's pair that its clients keep: of their own model and of the layers that join the
        pair."""
        return personal_part(self.pool[key].state)

    def objective(self) -> dict[str, Any]:
        """Return what clients know of the hyperparameters, as JSON."""
        return {}

    def test_objective(self) -> Mapping[str, Any]:
        """Clients know the same of the hyperparameters in tests, which may fine-tune, as in training."""
        return self.objective()

    def item_of(self, client: int) -> WorkItem:
        """Let a client train the pair of its type; the shared model travels."""
        key = self.keys[self.type_of[client - 1]]
        return WorkItem(client, key, self.objective(), bytes=self.pool[SHARED_MODEL].cost.bytes)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Average the shared models of all participants. Means of the own models play no part."""
        self.share(self.shared_mean(updates, means))

    def shared_mean(self, updates: Sequence[Update], means: Mapping[str, State]) -> State:
        """Return the mean of the participants' shared models by samples, from the means of each type's pairs."""
        weights = {key: sum(self.weight(each.item) for each in updates if each.item.model == key) for key in means}
        shared = [(shared_part(means[key]), None, weights[key]) for key in means]
        return count_mean(self.pool[SHARED_MODEL].state, shared)

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client its own model; test the shared one on all test samples."""
        return EvaluationPlan(self.personal_keys(), {SHARED_MODEL: SHARED_MODEL})

    def repeated_bytes(self) -> int:
        """Bytes of the shared model in the types' initial pairs."""
        return len(self.keys) * self.pool[SHARED_MODEL].cost.bytes

    def served_bytes(self) -> Sequence[float]:
        """Bytes of each client's own model, which is tested alone."""
        by_type = [float(models.cost(member_specs(self.pool[key].spec)[0]).bytes) for key in self.keys]
        return [by_type[index] for index in self.type_of.tolist()]


def shared_part(state: State) -> State:
    """The tensors of a pair's shared model, by their names in that model."""
    return {name.removeprefix(SHARED): tensor for name, tensor in state.items() if name.startswith(SHARED)}
