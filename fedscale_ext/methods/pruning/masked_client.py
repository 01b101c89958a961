"""Clients that each train their own part of the model, which a mask of its parameters describes (LotteryFL, Hermes)."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.method import (
    ClientSamples,
    ModelSpec,
    MultiModelClient,
    State,
    models,
)
from fedscale_ext.methods.pruning import masks
from fedscale_ext.tasks import bn_statistics
from fedscale_ext.tasks.bn_statistics import in_batches
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.resident import Cohort


class MaskedClient(MultiModelClient):
    """Client that trains the entries that its mask keeps.

    Gradients of the others are zero, so momentum cannot move them either. ``conf.own`` is what the client keeps (empty
    before its first round: everything). Subclasses define :meth:`mask` and :meth:`enter`.
    """

    def __init__(self, conf: Namespace, bench: Workbench) -> None:
        super().__init__(conf)
        self.bench = bench

    def mask(self, parameters: Mapping[str, Tensor], conf: Namespace) -> State:
        """Masks of the parameters that may be pruned, bool by name."""
        raise NotImplementedError

    def enter(self, data: ClientSamples, model: nn.Module, conf: Namespace) -> None:
        """Make the global ``model`` the client's start, in place.

        It sets ``conf.mask``, the entries that train, and ``conf.keeps``, the tensors that the client keeps afterwards.
        It does nothing where ``conf.own`` is None (only to measure how such clients train).
        """
        raise NotImplementedError

    def own_model(self, model: nn.Module, conf: Namespace) -> None:
        """Make ``model`` the client's personal model w * m_c."""
        parameters = trainable(model)
        masks.apply(self.mask(parameters, conf), parameters)

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """Train from the masked start; the result has the tensors that the client keeps."""
        self.enter(client_data, model, conf)
        return _with_own(super().train(client_data, model, conf), conf)

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[Namespace]
    ) -> list[dict[str, Any] | Exception]:
        """Train clients side by side, each from its own masked start."""
        for row, (samples, conf) in enumerate(zip(data, confs, strict=True)):
            if conf.own is not None:
                model = self.bench.module(conf.model_key)
                self.enter(samples, model, conf)
                cohort.set_start(row, model.state_dict())
        results = super().train_cohort(data, cohort, confs)
        return [
            one if isinstance(one, Exception) else _with_own(one, conf)
            for one, conf in zip(results, confs, strict=True)
        ]

    @torch.no_grad()
    def accuracy(self, data: ClientSamples, model: nn.Module, conf: Namespace) -> float:
        """Accuracy of the model on the client's validation part; -1 without one.

        BatchNorm's statistics are those of the training part: the server's are means over other networks.
        """
        training, validation = hold_out(len(data), conf.held_out, conf.seed, conf.client_id)
        if not len(validation):
            return -1.0
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        seen = bn_statistics.sums(model, (data.x[part] for part in in_batches(training, conf.test_bsz)))
        model.load_state_dict(bn_statistics.with_statistics(model.state_dict(), seen))
        model.eval()
        rows = torch.from_numpy(validation).to(data.y.device)
        correct = [(model(data.x[part]).argmax(-1) == data.y[part]).sum() for part in rows.split(conf.test_bsz)]
        model.load_state_dict(before, strict=False)  # training starts from the served statistics
        return int(torch.stack(correct).sum()) / len(rows)


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that train, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _with_own(result: dict[str, Any], conf: Namespace) -> dict[str, Any]:
    return result if conf.mask is None else {**result, "own": conf.keeps}


@lru_cache(maxsize=2)
def initial_weights(spec: ModelSpec, seed: int) -> State:
    """theta_0, as the aggregator drew it, so that it need not travel."""
    return models.initial_state(spec, seed)
