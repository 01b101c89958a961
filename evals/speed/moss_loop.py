"""WIRE as one would write it down: the teacher again for every loss that needs its maps (as in L2T-ww's code), the
pairs one by one, torch's autograd through all steps of a batch.

What :mod:`fedscale_ext.methods.moss` must equal; ``evals/speed/moss_server_step.py`` measures both.
"""

import torch
from torch import Tensor
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.core.types import State
from fedscale_ext.methods.moss.fidelity_aggregation import aggregate, fidelity
from fedscale_ext.methods.moss.knowledge_transfer import Wire
from fedscale_ext.methods.moss.proxy_models import ProxyModels, Public
from fedscale_ext.models import ModelSpec
from fedscale_ext.models.taps import features

Tensors = dict[str, Tensor]


def _network(spec: ModelSpec, state: State, dtype: torch.dtype) -> torch.nn.Module:
    network = models.build(spec).to(dtype)
    network.load_state_dict(state)
    return network


class Loop:
    """One transfer with maps only (no tokens), all pairs, meta-networks of one layer."""

    def __init__(self, wire: Wire, dtype: torch.dtype) -> None:
        """Begins where ``wire`` is, which stays as it is."""
        self.wire, self.options = wire, wire.options
        self.phi = {name: each.to(dtype, copy=True) for name, each in wire.phi.items()}
        self.projections = {name: each.to(dtype, copy=True) for name, each in wire.projections.items()}

    def weights(self, phi: Tensors, m: int, n: int, source: Tensor) -> tuple[Tensor, Tensor]:
        """Loc [B] and Deg [B, C_m] of a pair."""
        means = source.mean((2, 3))
        location, degree = f"location.{m}.0", f"degree.{m}.0"
        loc = functional.linear(means, phi[f"{location}.weight"][n], phi[f"{location}.bias"][n])
        deg = functional.linear(means, phi[f"{degree}.weight"][n], phi[f"{degree}.bias"][n])
        return functional.relu6(loc)[:, 0], deg.softmax(1)

    def matching(self, theta: Tensors, phi: Tensors, sources: list[Tensor], targets: list[Tensor]) -> Tensor:
        """Eq. 5, pair by pair."""
        loss, begin = sources[0].new_zeros(()), 0
        for m, source in enumerate(sources):
            rows = slice(begin, begin + source.shape[1])
            begin += source.shape[1]
            for n, found in enumerate(targets):
                loc, deg = self.weights(phi, m, n, source)
                r = theta[f"project.{n}"][rows]
                mapped = functional.conv2d(found, r[:, :-1, None, None], r[:, -1])
                wanted = source
                if wanted.shape[2:] != mapped.shape[2:]:
                    wanted = functional.interpolate(wanted, mapped.shape[2:], mode="bilinear", align_corners=False)
                each = (deg * (mapped - wanted).square().mean((2, 3))).sum(1)
                loss = loss + (loc * each).mean()
        return loss / (len(sources) * len(targets)) if self.options.pair_reduce == "mean" else loss

    def run(self, teacher: torch.nn.Module, state: State, public: Public, generator: torch.Generator) -> State:
        """The student's new state, as :meth:`Wire.run` gives it."""
        options, wire = self.options, self.wire
        network = _network(wire.student, state, public.x.dtype).train()
        theta = {**{name: each.detach() for name, each in network.named_parameters()}, **self.projections}
        names = [name for name, _ in network.named_parameters()]
        velocity = {name: torch.zeros_like(each) for name, each in theta.items()}
        phi = {name: each.requires_grad_() for name, each in self.phi.items()}
        adam = torch.optim.Adam(phi.values(), lr=options.meta_lr, weight_decay=options.meta_weight_decay)

        def right(theta: Tensors, x: Tensor, y: Tensor) -> Tensor:
            held = {name: theta[name] for name in names}
            return functional.cross_entropy(torch.func.functional_call(network, held, (x,)), y)

        def losses(theta: Tensors, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                sources = list(features(teacher, x, wire.teacher_taps)[1].values())
            logits, found = features(network, x, wire.student_taps, {name: theta[name] for name in names})
            ce = functional.cross_entropy(logits, y)
            return ce, options.beta * self.matching(theta, phi, sources, list(found.values()))

        def step(loss: Tensor, theta: Tensors, velocity: Tensors, create: bool) -> tuple[Tensors, Tensors]:
            found = torch.autograd.grad(loss, list(theta.values()), create_graph=create, materialize_grads=True)
            gradients = zip(theta, found, strict=True)
            velocity = {
                name: options.momentum * velocity[name] + each + options.weight_decay * theta[name]
                for name, each in gradients
            }
            return {name: theta[name] - options.lr * velocity[name] for name in theta}, velocity

        for _ in range(options.epochs):
            for rows in torch.randperm(len(public.x), generator=generator).split(options.batch_size):
                assert public.labels is not None
                x, y = public.x[rows], public.labels[rows]
                now = {name: each.detach().requires_grad_() for name, each in theta.items()}
                theta, velocity = step(sum(losses(now, x, y)), now, velocity, False)
                kept = {name: each.clone() for name, each in network.named_buffers()}
                now = {name: each.detach().requires_grad_() for name, each in theta.items()}
                moving = velocity
                for _ in range(options.inner_steps):
                    now, moving = step(losses(now, x, y)[1], now, moving, True)
                now, _ = step(right(now, x, y), now, moving, True)
                adam.zero_grad()
                found = torch.autograd.grad(right(now, x, y), list(phi.values()))
                for each, gradient in zip(phi.values(), found, strict=True):
                    each.grad = gradient
                adam.step()
                for name, buffer in network.named_buffers():
                    buffer.copy_(kept[name])
        self.projections = {name: theta[name].detach() for name in self.projections}
        held = {**dict(network.named_buffers()), **theta}
        return {name: held[name].detach() for name in state}


def server_step(
    server: ProxyModels, round: int, found: dict[str, State], samples: dict[str, int], public: Public
) -> dict[str, State]:
    """What ``server.step`` gives as models, of a server that was never used, which stays as it is."""

    def transfer(name: str, teacher: torch.nn.Module, student: State) -> State:
        generator = torch_stream(server.seed, round, "moss", name)
        return Loop(server.wires[name], public.x.dtype).run(teacher, student, public, generator)

    spec, dtype = server.architecture.spec, public.x.dtype
    proxies, weights = [], []
    for key, state in found.items():
        if f"forward.{key}" not in server.wires:
            proxies.append(state)
            weights.append(1.0)
            continue
        teacher = _network(server.types[key].spec, state, dtype).eval()
        proxies.append(transfer(f"forward.{key}", teacher, server.proxy))
        with torch.no_grad():
            weights.append(fidelity(teacher(public.x), _network(spec, proxies[-1], dtype).eval()(public.x)))
    mean = aggregate(proxies, weights)
    teacher = _network(spec, mean, dtype).eval()
    return {
        key: transfer(f"backward.{key}", teacher, state) if f"backward.{key}" in server.wires else mean
        for key, state in found.items()
    }
