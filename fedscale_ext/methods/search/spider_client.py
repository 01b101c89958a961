"""SPIDER's clients: a global network and a local one side by side, and how the local one shrinks (Mushtaq et al. 2021).

``conf.own`` is the local state and ``alive``, which operators it keeps (nothing yet: the global one, all of them);
``conf.spider`` has ``lambda`` and, in rounds in which local networks shrink, how (``shrink``). A client that
fine-tunes what it is served has no ``conf.spider``: it trains its local network alone.
"""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.method import ClientSamples, ModelSpec, MultiModelClient, MultiModelExecutor, stream
from fedscale_ext.models.supernet.family import Searchable
from fedscale_ext.training.optimizers import optimizer_of
from fedscale_ext.training.outcome import result
from fedscale_ext.training.sgd import Pull, Sgd, Steps

ALIVE = "alive"  # beside a local state: bool [layers, most operators of a layer]

Ops = list[tuple[str, ...]]


def everything(ops: Sequence[Sequence[str]]) -> np.ndarray:
    """``alive`` of a network that keeps all operators of its layers."""
    alive = np.zeros((len(ops), max(map(len, ops))), dtype=bool)
    for layer, names in enumerate(ops):
        alive[layer, : len(names)] = True
    return alive


def kept_ops(ops: Sequence[Sequence[str]], alive: np.ndarray) -> Ops:
    """Names of the operators of each layer that are alive."""
    return [tuple(name for name, keeps in zip(names, own, strict=False) if keeps)
            for names, own in zip(ops, alive, strict=True)]  # fmt: skip


class Local:
    """A client's local network: its tensors, run by the resident module of the global one."""

    def __init__(self, module: nn.Module, ops: Sequence[Sequence[str]], state: dict[str, Tensor], alive: np.ndarray):
        self._module, self._ops, self.state, self.alive = module, ops, state, alive

    def hold(self, alive: np.ndarray) -> dict[str, Tensor]:
        """Let the module be that of these operators; their tensors by name."""
        cast(Searchable, self._module).hold(kept_ops(self._ops, alive))
        return {name: self.state[name] for name in self._module.state_dict()}

    def release(self) -> None:
        """Let the module be the global one again."""
        cast(Searchable, self._module).hold(self._ops)

    def run(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        """Logits; buffers among ``tensors`` change."""
        output: Tensor = functional_call(self._module, tensors, (x,))
        return output

    @torch.no_grad()
    def shrink(self, how: str, x: Tensor, y: Tensor, batch: int, rng: np.random.Generator) -> None:
        """Drop operators of a layer by what the samples x [n, C, H, W], y [n] say of the network without each.

        Of equal accuracies the loss decides. BatchNorm takes the samples' own statistics, as in the public code.
        """
        several = np.flatnonzero(self.alive.sum(1) > 1)
        if not len(several):
            return
        layer = int(rng.choice(several))
        columns = np.flatnonzero(self.alive[layer])
        without = []
        for column in columns:
            alive = self.alive.copy()
            alive[layer, column] = False
            tensors = {name: tensor.clone() for name, tensor in self.hold(alive).items()}
            logits = torch.cat([self.run(tensors, part) for part in x.split(batch)])
            loss = nn.functional.cross_entropy(logits, y)
            without.append((int((logits.argmax(-1) == y).sum()), -float(loss)))
        order = sorted(range(len(columns)), key=lambda place: without[place])  # most is lost without the first
        gone = [columns[order[-1]]] if how == "operator" else columns[order[1:]]
        self.alive[layer, gone] = False


class SpiderClient(MultiModelClient):
    """Steps both networks on each batch; one client after another, as each has a network of its own."""

    in_cohorts: ClassVar[bool] = False

    def __init__(self, conf: Namespace, spec: ModelSpec | None = None) -> None:
        super().__init__(conf)
        self._spec = spec  # of the global network; None where only asked for the class

    def _local(self, model: nn.Module, conf: Namespace) -> Local:
        assert self._spec is not None
        own = conf.own or {}
        state = {name: own.get(name, tensor).detach().clone() for name, tensor in model.state_dict().items()}
        alive = own[ALIVE].cpu().numpy().copy() if ALIVE in own else everything(self._spec["ops"])
        return Local(model, self._spec["ops"], state, alive)

    @torch.no_grad()
    def own_model(self, model: nn.Module, conf: Namespace) -> None:
        """Its local network."""
        local = self._local(model, conf)
        for name, tensor in model.state_dict().items():
            tensor.copy_(local.state[name])
        local.hold(local.alive)

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """See :meth:`MultiModelClient.train`; figures are the global network's, ``own`` is the local one."""
        asked = getattr(conf, "spider", None)
        if asked is None or self._spec is None:
            if self._spec is not None and conf.own is not None:
                self.own_model(model, conf)
            return super().train(client_data, model, conf)
        model.train()
        handed = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        local = self._local(model, conf)
        _, validation = hold_out(len(client_data), conf.held_out, conf.seed, conf.client_id)
        if asked["shrink"] and len(validation):
            rows = torch.from_numpy(validation).to(client_data.y.device)
            rng = stream(conf.seed, conf.round, conf.client_id, "shrink")
            local.shrink(asked["shrink"], client_data.x[rows], client_data.y[rows], conf.batch_size, rng)
            local.release()
        parameters: list[Tensor] = [tensor for tensor in model.parameters() if tensor.requires_grad]
        steps = optimizer_of(conf).begin(parameters)
        tensors = local.hold(local.alive)
        own = [tensors[name].requires_grad_() for name, tensor in model.named_parameters() if tensor.requires_grad]
        names = [name for name, tensor in model.named_parameters() if tensor.requires_grad]
        pulled = self._pulled(asked["lambda"], own, [handed[name] for name in names], conf)
        found = []
        for x, y in self.seen(client_data, conf):
            local.release()
            losses = self.losses(self.output(model, x, client_data, conf), y)
            steps.step(parameters, list(torch.autograd.grad(losses.mean(), parameters)))
            found.append(losses.detach())
            local.hold(local.alive)
            mine = self.losses(self.output(lambda given: local.run(tensors, given), x, client_data, conf), y)
            pulled.step(own, list(torch.autograd.grad(mine.mean(), own)))
        local.release()
        new = {name: tensor.detach() for name, tensor in local.state.items()}
        new[ALIVE] = torch.from_numpy(local.alive)
        return {**result(conf, len(client_data), found), "update_weight": model.state_dict(), "own": new}

    @staticmethod
    def _pulled(pull: float, own: list[Tensor], towards: list[Tensor], conf: Namespace) -> Steps:
        """SGD of the local network: its prox term is (lambda/2) |w_local - w_global|^2 (Equation 3)."""
        sgd = Sgd(conf.learning_rate, conf.client_momentum, conf.client_weight_decay, pull, conf.clip_norm)
        velocity = [torch.zeros_like(tensor) for tensor in own] if sgd.momentum else []
        return Steps(sgd, Pull(pull, conf.clip_norm, towards if pull else []), velocity)


class SpiderExecutor(MultiModelExecutor):
    """Its clients are told the supernet's spec."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How SPIDER's clients train, and what they are served."""
        known = hasattr(conf, "model_key") and conf.own is not None
        return SpiderClient(conf, self.bench.spec(conf.model_key) if known else None)
