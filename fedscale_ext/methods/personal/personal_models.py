"""Clients that keep their models from round to round: each trains on from its own, alone or in a cohort.

``conf.own`` is the client's model (empty: none yet; None where the client keeps none and trains what it was handed).
"""

from argparse import Namespace
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import nn

from fedscale_ext.method import ClientSamples, MultiModelClient, MultiModelExecutor, State
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.resident import Cohort


def floating_tensors(state: State) -> State:
    """What a client keeps of its model's state: all but BatchNorm's count of batches, which nothing reads."""
    return {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}


@torch.no_grad()
def enter(model: nn.Module, state: State) -> None:
    """Let ``model`` hold the floating tensors of ``state``."""
    for name, tensor in floating_tensors(model.state_dict()).items():
        if name in state:
            tensor.copy_(state[name])


class PersonalModelClient(MultiModelClient):
    """Trains a model that stays with it; its result brings the new one as ``own``."""

    loss_key: Hashable = None  # a recorded step would begin from the start that all clients share

    def __init__(self, conf: Namespace, bench: Workbench) -> None:
        super().__init__(conf)
        self._bench = bench

    def own_model(self, model: nn.Module, conf: Namespace) -> None:
        """Make ``model`` the one that the client keeps."""
        enter(model, conf.own or {})

    def begin(self, model: nn.Module, conf: Namespace) -> None:
        """Make ``model`` the one that the client keeps, prepared."""
        super().begin(model, conf)
        self.prepare(model, conf)

    # ---- what subclasses may say ----

    def prepare(self, model: nn.Module, conf: Namespace) -> None:
        """Train ``model`` before the client's own samples do; nothing by default."""

    def prepare_cohort(self, cohort: Cohort, confs: Sequence[Namespace]) -> dict[int, Exception]:
        """The same side by side; the failures by row."""
        return {}

    def reports(self, conf: Namespace) -> bool:
        """Whether :meth:`reported` adds to a client's result."""
        return conf.own is not None

    def reported(self, result: dict[str, Any], model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """The result with what the client hands back beside its update: its trained ``model``."""
        return result if conf.own is None else {**result, "own": copied(floating_tensors(model.state_dict()))}

    # ---- training ----

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """See :meth:`MultiModelClient.train`; it begins from the client's model."""
        self.begin(model, conf)
        result = super().train(client_data, model, conf)
        return self.reported(result, model, conf) if self.reports(conf) else result

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[Namespace]
    ) -> list[dict[str, Any] | Exception]:
        """See :meth:`MultiModelClient.train_cohort`; each client begins from its model."""
        for row, conf in enumerate(confs):
            if conf.own is not None:
                model = self._bench.module(conf.model_key)
                self.own_model(model, conf)
                cohort.place(row, model.state_dict())
        failed = self.prepare_cohort(cohort, confs)
        results = super().train_cohort(data, cohort, confs)
        states = cohort.trained([conf.local_steps for conf in confs])
        reported: list[dict[str, Any] | Exception] = []
        for row, (one, conf) in enumerate(zip(results, confs, strict=True)):
            one = failed.get(row, one)
            if not isinstance(one, Exception) and self.reports(conf):
                model = self._bench.module(conf.model_key)
                enter(model, {name: tensor[row] for name, tensor in states.items()})  # type: ignore[index]
                one = self.reported(one, model, conf)
            reported.append(one)
        return reported


def copied(state: State) -> State:
    """The same tensors in memory of their own."""
    return {name: tensor.detach().clone() for name, tensor in state.items()}


class PersonalModelExecutor(MultiModelExecutor):
    """Its clients can look at the model that they were handed."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How such clients train."""
        return PersonalModelClient(conf, self.bench)
