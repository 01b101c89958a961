"""Clients that keep their models from round to round: each trains on from its own, alone or in a cohort.

``conf.client_state`` is the client's model. It is empty before the client's first round. It is None if the client keeps
no model and trains the one that it receives.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.method import ClientSamples, MultiModelClient, State
from fedscale_ext.training.resident import Cohort


def floating_tensors(state: State) -> State:
    """The floating-point tensors of a state, which a client keeps: all but BatchNorm's count of batches."""
    return {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}


def bytes_of(tensors: State) -> int:
    """Return the bytes of all tensors."""
    return sum(tensor.nbytes for tensor in tensors.values())


@torch.no_grad()
def load_tensors(model: nn.Module, state: State) -> None:
    """Copy the floating-point tensors of ``state`` into ``model``."""
    for name, tensor in floating_tensors(model.state_dict()).items():
        if name in state:
            tensor.copy_(state[name])


class PersonalModelClient(MultiModelClient):
    """Client that trains a model of its own; its result has the new one as ``client_state``."""

    loss_key: Hashable = None  # a recorded step would begin from the start that all clients share

    def load_personal_model(self, model: nn.Module, conf: ClientConfig) -> None:
        """Load the client's model into ``model``."""
        load_tensors(model, conf.client_state or {})

    def begin(self, model: nn.Module, conf: ClientConfig) -> None:
        """Load the client's model into ``model``, and prepare it."""
        super().begin(model, conf)
        self.prepare(model, conf)

    # ---- what subclasses may say ----

    def prepare(self, model: nn.Module, conf: ClientConfig) -> None:
        """Train ``model`` before the client's own samples do; nothing by default."""

    def prepare_cohort(self, cohort: Cohort, confs: Sequence[ClientConfig]) -> dict[int, Exception]:
        """Prepare a cohort side by side, and return failures by row."""
        return {}

    def next_client_state(self, model: nn.Module, conf: ClientConfig) -> State:
        """Return what the client keeps of its trained ``model``, in memory of its own: all floating-point tensors.

        It is called for clients that have a ``client_state``, which may be empty, and in fine-tuning.
        """
        return copied(floating_tensors(model.state_dict()))

    def tensors_to_send(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State | None:
        """Return the small tensors that the client sends of its trained ``model``, where the server asks for some.

        Args:
            model: The client's trained model.
            data: The client's training samples.
            conf: The client's settings.

        Returns:
            Tensors like the template of the method's ``ReturnedTensors``; None if it sends none.

        """
        return None

    # ---- training ----

    def completed_result(
        self, result: dict[str, Any], model: nn.Module, data: ClientSamples, conf: ClientConfig
    ) -> dict[str, Any]:
        """Return the result of a training with the client's next state and the tensors that it sends."""
        if conf.client_state is not None:
            result = {**result, "client_state": self.next_client_state(model, conf)}
        tensors = self.tensors_to_send(model, data, conf) if conf.returns_tensors else None
        return result if tensors is None else {**result, "returned": tensors}

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train from the client's model; see :meth:`MultiModelClient.train`."""
        self.begin(model, conf)
        return self.completed_result(super().train(client_data, model, conf), model, client_data, conf)

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[ClientConfig]
    ) -> list[dict[str, Any] | Exception]:
        """Train a cohort, each client from its model; see :meth:`MultiModelClient.train_cohort`."""
        for row, conf in enumerate(confs):
            if conf.client_state is not None:
                model = self.bench.module(conf.model_key)
                self.load_personal_model(model, conf)
                cohort.set_start(row, model.state_dict())
        failed = self.prepare_cohort(cohort, confs)
        results = super().train_cohort(data, cohort, confs)
        states = cohort.trained([conf.local_steps for conf in confs])
        completed: list[dict[str, Any] | Exception] = []
        for row, (one, conf) in enumerate(zip(results, confs, strict=True)):
            one = failed.get(row, one)
            if not isinstance(one, Exception) and (conf.client_state is not None or conf.returns_tensors):
                model = self.bench.module(conf.model_key)
                load_tensors(model, {name: tensor[row] for name, tensor in states.items()})  # type: ignore[index]
                one = self.completed_result(one, model, data[row], conf)
            completed.append(one)
        return completed


def copied(state: State) -> State:
    """Copies of a state's tensors in memory of their own."""
    return {name: tensor.detach().clone() for name, tensor in state.items()}
