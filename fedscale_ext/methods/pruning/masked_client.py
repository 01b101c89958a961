"""Clients that each train their own part of the model, which a mask of its parameters describes (LotteryFL, Hermes)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.local_steps import hold_out, trained_on
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.core.types import State, Task
from fedscale_ext.method import ClientSamples, ModelSpec, MultiModelClient, models
from fedscale_ext.methods.pruning import masks
from fedscale_ext.tasks import bn_statistics
from fedscale_ext.tasks.bn_statistics import in_batches
from fedscale_ext.training.resident import Cohort


class MaskedClient(MultiModelClient):
    """Client that trains the entries that its mask keeps.

    Gradients of the others are zero, so momentum cannot move them either. ``conf.client_state`` describes the mask
    (empty before the first round: everything trains). Subclasses define :meth:`mask` and :meth:`start_masked`.
    """

    def mask(self, parameters: Mapping[str, Tensor], conf: ClientConfig) -> State:
        """Masks of the parameters that may be pruned, bool by name."""
        raise NotImplementedError

    def start_masked(self, data: ClientSamples, model: nn.Module, conf: ClientConfig) -> tuple[State, State]:
        """Make the global ``model`` the client's initial model, in place.

        Returns:
            The mask of the entries that train, and the client's next state.

        """
        raise NotImplementedError

    def load_personal_model(self, model: nn.Module, conf: ClientConfig) -> None:
        """Make ``model`` the client's personal model w * m_c."""
        parameters = trainable(model)
        masks.apply(self.mask(parameters, conf), parameters)

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train from the masked initial model; the result has the client's next state."""
        if conf.client_state is None:  # only to measure how such clients train
            return super().train(client_data, model, conf)
        mask, client_state = self.start_masked(client_data, model, conf)
        return {**super().train(client_data, model, replace(conf, mask=mask)), "client_state": client_state}

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[ClientConfig]
    ) -> list[dict[str, Any] | Exception]:
        """Train clients side by side, each from its own masked initial model."""
        if confs[0].client_state is None:
            return super().train_cohort(data, cohort, confs)
        masked, client_states = [], []
        for row, (samples, conf) in enumerate(zip(data, confs, strict=True)):
            model = self.bench.module(conf.model_key)
            mask, client_state = self.start_masked(samples, model, conf)
            cohort.set_start(row, model.state_dict())
            masked.append(replace(conf, mask=mask))
            client_states.append(client_state)
        results = super().train_cohort(data, cohort, masked)
        return [
            one if isinstance(one, Exception) else {**one, "client_state": client_state}
            for one, client_state in zip(results, client_states, strict=True)
        ]

    @torch.no_grad()
    def accuracy(self, data: ClientSamples, model: nn.Module, conf: ClientConfig) -> float:
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


def validation_passes(task: Task, client: int, share: float, state: State) -> float:
    """Return how many samples :meth:`MaskedClient.accuracy` passes forward, per sample of the client's steps.

    Args:
        task: Sizes of the clients' data.
        client: Number of the client.
        share: Share of its training samples that the client holds out.
        state: The model's, which tells whether BatchNorm's statistics are measured on the other samples, too.

    """
    samples = int(task.train_sizes[client - 1])
    training = trained_on(samples, share)
    if training == samples:
        return 0.0
    passed = samples if bn_statistics.layers(state) else samples - training
    return passed / float(task.step_sizes(client, {"held_out": share}).sum())


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that train, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


@cached_by_spec(2)
def initial_weights(spec: ModelSpec, seed: int) -> State:
    """theta_0, as the aggregator drew it, so that it need not travel."""
    return models.initial_state(spec, seed)
