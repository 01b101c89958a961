"""A client's local training: steps of SGD or Adam on the model that it receives, with FedScale's results."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from fedscale.cloud.execution.torch_client import TorchClient
from overrides import overrides
from torch import Tensor, nn
from torch.nn import functional

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.local_steps import drawn_rows, hold_out
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.streams import stream
from fedscale_ext.models.layers.dropout import drawing
from fedscale_ext.models.layers.final_layer import deepest, input_of
from fedscale_ext.training.cohort import dropout_generator, train_together
from fedscale_ext.training.fused_linear import FusedWeight, count_further_uses, counted_calls, fused, split
from fedscale_ext.training.label_mask import masked, present
from fedscale_ext.training.optimizers.choice import optimizer_of
from fedscale_ext.training.optimizers.sgd import Steps, stacked_masks
from fedscale_ext.training.outcome import result
from fedscale_ext.training.resident import Cohort, autocast
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.training.scaffold import stacked_offsets


class Bench(Protocol):
    """The models that came with the executor's units, by pool key (``fedscale_ext/tasks/workbench.py``)."""

    def spec(self, key: str) -> ModelSpec:
        """Return the spec of a model."""

    def host(self, key: str) -> ModelSpec:
        """Return the spec of the network that runs a model: its supernet's, or its own."""

    def module(self, key: str) -> nn.Module:
        """Return the network that runs a model, reset to the model's state as it was sent."""


class MultiModelClient(TorchClient):
    """FedScale's client for models of any spec, a configurable optimiser and a right-signed prox term.

    A method whose clients differ overrides :meth:`losses` (which serves both ways of training) or
    :meth:`train`; in the latter case it sets ``in_cohorts`` to False, so that its clients train one
    after another. FedScale's ``get_optimizer`` is not used: the key ``client_optimizer`` chooses the optimizer.

    Args:
        conf: The client's settings.
        bench: The models that the executor has; the attribute of this name.

    """

    in_cohorts: ClassVar[bool] = True

    #: All values that :meth:`losses` reads from the objective, as one hashable. On a GPU, a cohort's step is captured
    #: as a CUDA graph and reused for equal keys. None: never captured.
    loss_key: Hashable = ()

    #: The linear layer whose inputs are features for :meth:`feature_losses`; None: :meth:`losses` needs no features.
    tap: str | None = None

    #: In :meth:`feature_losses`, the tapped layer itself: features [..., n, F] -> outputs [..., n, out] of each client.
    tapped: Callable[[Tensor], Tensor]

    #: In a step of a cohort, which rows of its labels are samples and not padding, bool [k, B]; None: all.
    is_sample: Tensor | None = None

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf)
        self.bench = bench

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample.

        Args:
            output: Logits [..., classes], or [..., 1, classes] of a network with one exit.
            labels: Class numbers, int64 [...].

        Returns:
            The losses [...].

        Raises:
            ValueError: If the network has several exits.

        """
        if output.dim() > labels.dim() + 1 and output.shape[-2] > 1:
            raise ValueError(
                f"the model has {output.shape[-2]} exits and this method's clients train one: use a single_exit_ model"
            )
        flat = functional.cross_entropy(output.flatten(0, -2), labels.flatten(), reduction="none")
        return flat.view(labels.shape)

    def feature_losses(self, output: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample of a client with a :attr:`tap`.

        Args:
            output: Logits, as in :meth:`losses`.
            features: Inputs of the tapped layer, [..., features].
            labels: Class numbers, int64 [...].

        Returns:
            The losses [...].

        """
        raise NotImplementedError

    def predictor(self, model: nn.Module, conf: ClientConfig) -> nn.Module:
        """Return the network whose logits are tested as those of the client's personal model.

        Args:
            model: The personal model.
            conf: The client's settings; its objective is that of the hook ``test_objective``.

        """
        return model

    def output(self, model: Callable[[Tensor], Tensor], x: Tensor, data: ClientSamples, conf: ClientConfig) -> Tensor:
        """Run the model as the client's loss needs it.

        Args:
            model: The network.
            x: A batch [B, C, H, W] of the client's samples.
            data: All samples of the client, whose labels tell its classes.
            conf: The client's settings.

        Returns:
            Logits [B, classes]; those of absent classes are zero if the objective has ``own_classes``.

        """
        with autocast(x.device, conf.precision):
            output = model(x).to(x.dtype)
        return masked(output, present([data.y], output.shape[-1])[0]) if conf.own_classes else output

    def load_personal_model(self, model: nn.Module, conf: ClientConfig) -> None:
        """Turn ``model`` into the client's personal model, in place; methods with ``ClientState`` override this.

        Args:
            model: The network as it was sent.
            conf: The client's settings; ``conf.client_state`` holds the tensors that the client keeps, at first none.

        """
        raise NotImplementedError

    def begin(self, model: nn.Module, conf: ClientConfig) -> None:
        """Turn ``model``, as it was sent, into the initial model of local training, in place.

        ``test_around_training`` tests that model. A ``train`` of your own must begin from the same one;
        ``PersonalModelClient.train`` calls this method.

        Args:
            model: The network as it was sent.
            conf: The client's settings.

        """
        if conf.client_state is not None:
            self.load_personal_model(model, conf)

    def batches(self, samples: int, conf: ClientConfig) -> list[np.ndarray]:
        """Draw the batches of the client's steps from its random stream.

        Args:
            samples: Number of the client's samples.
            conf: The client's settings; samples that it holds out are never drawn.

        Returns:
            The row numbers of each step, int64 [B].

        """
        rng = stream(conf.seed, conf.round, conf.client_id, "batches")
        if not conf.held_out:
            return drawn_rows(samples, conf, rng)
        rows, _ = hold_out(samples, conf.held_out, conf.seed, conf.client_id)
        return [rows[drawn] for drawn in drawn_rows(len(rows), conf, rng)]

    def seen(self, data: ClientSamples, conf: ClientConfig) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the augmented samples [B, C, H, W] and labels [B] of each of the client's steps."""
        device, drawn = data.y.device, self.batches(len(data), conf)
        views = data.views(drawn, conf)
        rows = torch.from_numpy(np.concatenate(drawn)).to(device)
        changes = None if views is None else torch.from_numpy(views).to(device)
        for step, picked in enumerate(rows.split(list(map(len, drawn)))):
            x = data.x.index_select(0, picked)
            if changes is not None and data.augmentation is not None:
                x = data.augmentation.apply(x, changes[step, : len(picked)])
            yield x, data.y.index_select(0, picked)

    @overrides
    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train ``model`` in place for ``conf.local_steps`` steps.

        Args:
            client_data: The client's samples.
            model: The network; its tensors are overwritten by the next client.
            conf: The client's settings.

        Returns:
            FedScale's result: client_id, moving_loss, trained_size, success, utility, update_weight (the model's own
            tensors), wall_duration.

        Raises:
            FloatingPointError: If the loss is not finite; FedScale would report such a client as a success.

        """
        model.train()
        seen = self.seen(client_data, conf)
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        parameters: list[Tensor] = [parameter for _, parameter in named]

        def backward(
            x: Tensor, y: Tensor, calls: dict[nn.Linear, int] | None = None
        ) -> tuple[Tensor, list[Tensor | None]]:
            if self.tap is None:
                loss = self.losses(self.output(model, x, client_data, conf), y)
            else:
                self.tapped = model.get_submodule(self.tap)
                with input_of(self.tapped) as last:
                    output = self.output(model, x, client_data, conf)
                loss = self.feature_losses(output, deepest(last.features, 2).to(x.dtype), y)
            if calls:
                count_further_uses(calls, loss)
            return loss.detach(), list(torch.autograd.grad(loss.mean(), parameters, allow_unused=calls is not None))

        generator = dropout_generator(conf)
        # the first step tells which parameters the network uses, and how often those of its large layers
        with drawing(model, generator), counted_calls(model) as calls:
            loss, gradients = backward(*next(seen), calls)
        used = [pair for pair, gradient in zip(named, gradients, strict=True) if gradient is not None]
        parameters = [parameter for _, parameter in used]
        names = [name for name, _ in used]
        offset = [tensor[0] for tensor in stacked_offsets([conf], names)]
        mask = [None if tensor is None else tensor[0] for tensor in stacked_masks([conf], names)]
        steps = optimizer_of(conf).begin(parameters, offset, mask)
        steps.step(parameters, [gradient for gradient in gradients if gradient is not None])
        losses = [loss]
        alone: dict[nn.Linear, FusedWeight] = {}
        if isinstance(steps, Steps) and not (offset or mask or conf.group_lasso) and conf.precision == "float32":
            parameters, steps, alone = split(parameters, steps, calls)
        with drawing(model, generator), fused(alone):
            for batch in seen:
                loss, gradients = backward(*batch)
                steps.step(parameters, [gradient for gradient in gradients if gradient is not None])
                losses.append(loss)
        return {**result(conf, len(client_data), losses), "update_weight": model.state_dict()}

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[ClientConfig]
    ) -> list[dict[str, Any] | Exception]:
        """Train clients side by side, each as :meth:`train` would.

        Args:
            data: Samples of each client.
            cohort: The stacked network, restored to the clients' start.
            confs: Settings of each client, which may differ in ``client_id``, ``local_steps``, ``gradient_offset``,
                ``client_state`` and ``mask`` only.

        Returns:
            The results in order, without the trained states, which ``cohort.trained`` gives. A client whose loss is not
            finite has a FloatingPointError instead; it cannot disturb the others.

        """
        return train_together(self, data, cohort, confs)


def seed_layers(conf: ClientConfig) -> None:
    """Seed torch's global generator, from which torch's dropout layers draw, by the client's random stream."""
    torch.manual_seed(int(stream(conf.seed, conf.round, conf.client_id, "layers").integers(2**62)))


def train_alone(
    client: MultiModelClient, data: ClientSamples, module: torch.nn.Module, conf: ClientConfig
) -> dict[str, Any]:
    """Train one client on a resident module, with torch's global generator seeded by :func:`seed_layers`."""
    seed_layers(conf)
    return client.train(data, module, conf)
