"""The server of methods whose clients keep their models, and exchange nothing, small tensors, logits or a shared model.

The client's half is in ``personal_models.py``. In the papers a kept model never travels. Here executors receive it, as
they stand for devices, and it does not count as traffic. What counts is what a method sends beside it.

A client that has not taken part yet has the initial model of its type, which all clients of that type share.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fedscale_ext.method import ClientState, ClientTensors, EvaluationPlan, Excludes, Feature, State, WorkItem
from fedscale_ext.methods.device_types import DeviceTypesAggregator
from fedscale_ext.methods.personal.personal_models import PersonalModelClient, bytes_of, floating_tensors


class PersonalModelsAggregator(DeviceTypesAggregator):
    """Base of methods whose clients keep their models from round to round, each of its type's architecture."""

    Client: ClassVar[type] = PersonalModelClient
    exchanges_models: ClassVar[bool] = False
    needs_states: ClassVar[bool] = False
    excludes: ClassVar[tuple[Excludes, ...]] = (Excludes(Feature.CHANGES, "trains models that its clients keep"),)

    def personal_state(self, key: str) -> State:
        """Return the tensors of a type's model that its clients keep."""
        return floating_tensors(self.pool[key].state)

    def client_tensors(self) -> list[ClientTensors]:
        """Keep each client's model from round to round."""
        templates = {key: self.personal_state(key) for key in self.keys}
        return [*super().client_tensors(), ClientState(self.log_dir, self.task.num_clients, templates)]

    def personal_item(
        self,
        client: int,
        objective: Mapping[str, Any],
        overrides: Mapping[str, Any],
        *,
        trained: float,
        passed: float,
        bytes: int,
        upload: int | None = None,
    ) -> WorkItem:
        """Let a client train the model that it keeps, and count its work beside the steps on its own samples.

        Args:
            client: Number of the client.
            objective: The item's objective.
            overrides: The item's overrides.
            trained: Samples that the client trains on beside, or as much work.
            passed: Samples that its model passes forward beside, without gradients.
            bytes: What the client downloads.
            upload: What it uploads, where that is not known from elsewhere.

        """
        seen = float(self.task.step_sizes(client, overrides).sum())
        return WorkItem(
            client,
            self.keys[self.type_of[client - 1]],
            objective,
            overrides,
            compute_fraction=1.0 + trained / seen,
            forward_fraction=passed / seen,
            bytes=bytes,
            upload=upload,
        )

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client its own model. There is no global one."""
        return EvaluationPlan(self.personal_keys())

    def personal_bytes(self) -> Sequence[float]:
        """Bytes of what each client keeps, as its file has it: :meth:`personal_state` of its type. A head that all
        clients share is among them (LG-FedAvg, FedGH): a client trains and stores one of its own."""
        by_type = [float(bytes_of(self.personal_state(key))) for key in self.keys]
        return [by_type[index] for index in self.type_of.tolist()]

    def served_bytes(self) -> Sequence[float]:
        """Bytes of the model that each client is tested with: whole, as under methods that send theirs."""
        by_type = [float(self.pool[key].cost.bytes) for key in self.keys]
        return [by_type[index] for index in self.type_of.tolist()]
