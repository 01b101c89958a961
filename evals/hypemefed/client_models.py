"""Last layers that clients trained, and what stands for them: generated ones and other guesses (Figures 3c, 4, 11).

Section 3.2: every client trains the full model; hypernetworks learn from four fifths of the clients, and generate the
last block of the others from what they trained before it. The clients start from a finished job's model and train
with the job's own settings.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional

from evals.hypemefed.networks import State, norms_of, up_to, whole_model
from evals.paper.data import data_set
from evals.paper.experiment import Run
from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.streams import stream, torch_stream
from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks
from fedscale_ext.methods.hypemefed.measures import weight_error
from fedscale_ext.methods.hypemefed.params import HypeMeFedParams

GENERATED, RANDOM = "generated", "random"
START, OTHERS = "global layer before training", "mean of the other clients"
MAE, NORMALISED, SPREAD = "MAE", "normalised MAE", "spread / trained"
_LEARNING = 0.8  # share of the clients that hypernetworks learn from


@dataclass(frozen=True)
class Trained:
    """A job's clients, each after training of its own: convolutions by name, of ``depth`` blocks."""

    start: State
    random: State
    learning: Sequence[State]
    held_out: Sequence[State]
    depth: int
    params: HypeMeFedParams
    shapes: dict[str, tuple[int, ...]]
    seed: int

    @property
    def last(self) -> list[str]:
        """Names of the last block's convolutions."""
        return [name for name in self.start if name.startswith(f"block{self.depth}.")]


@cache
def trained_clients(log_dir: Path) -> Trained:
    """Train each client of a finished job; about what a round of all clients costs."""
    spec, state, depth = whole_model(log_dir)
    header = json.loads((log_dir / "header.json").read_text(encoding="utf-8"))
    config, data = header["config"], data_set(log_dir)
    convolutions = [name for name, tensor in state.items() if name.startswith("block") and tensor.dim() == 4]
    states = []
    for client in range(1, data.num_clients + 1):
        trained = _trained(spec, state, *data.tensors(data.train_rows(client)), config, client)
        states.append({name: trained[name] for name in convolutions})
    order = stream(config["seed"], "held out clients").permutation(len(states))
    learning, held_out = np.split(order, [int(_LEARNING * len(states))])
    fresh = models.initial_state(spec, torch_stream(config["seed"], "random layers"))
    return Trained(
        start={name: state[name] for name in convolutions},
        random=fresh,
        learning=[states[client] for client in learning],
        held_out=[states[client] for client in held_out],
        depth=depth,
        params=HypeMeFedParams(**header["params"]),
        shapes={name: tuple(tensor.shape) for name, tensor in state.items()},
        seed=config["seed"],
    )


def _trained(
    spec: ModelSpec, state: State, x: torch.Tensor, y: torch.Tensor, config: dict[str, Any], client: int
) -> State:
    """A client's state after its epochs by Adam on the sum of its exits' losses."""
    network = models.build(spec).train()
    network.load_state_dict(state)
    optimizer = torch.optim.Adam(network.parameters(), config["learning_rate"],
                                 weight_decay=config["client_weight_decay"])  # fmt: skip
    rng = stream(config["seed"], client, "own training")
    with torch.random.fork_rng(devices=[]):  # dropout
        torch.manual_seed(int(rng.integers(2**31)))
        for _ in range(config["local_epochs"]):
            for rows in torch.from_numpy(rng.permutation(len(y))).split(config["batch_size"]):
                if len(rows) > 1:  # BatchNorm
                    exits = network(x[rows]).unbind(1)
                    loss = sum(functional.cross_entropy(logits, y[rows]) for logits in exits)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
    return {name: tensor.detach() for name, tensor in network.state_dict().items()}


@cache
def guesses(log_dir: Path, k: int | Literal["all"] | None = None) -> dict[str, list[State]]:
    """What stands for the last block of each client that was held out; ``k``: components, the job's if None."""
    job = trained_clients(log_dir)
    params = job.params if k is None else replace(job.params, k=k)
    networks = HyperNetworks(job.shapes, params, torch_stream(job.seed, "hypernetworks"))
    networks.train(job.learning, _shuffle(job.seed) if params.sample_order == "shuffled" else None)
    norms = norms_of(networks, params, job.learning, job.start)
    generated = networks.generate([up_to(state, job.depth - 1) for state in job.held_out], norms)
    mean = {name: torch.stack([state[name] for state in job.learning]).mean(0) for name in job.last}
    fixed = {START: job.start, OTHERS: mean, RANDOM: job.random}
    return {GENERATED: generated, **{title: [one] * len(generated) for title, one in fixed.items()}}


def _shuffle(seed: int) -> Callable[[str], np.random.Generator]:
    return lambda target: stream(seed, "order of samples", target)


def row(run: Run, label: str, job: Trained, guesses: Sequence[State]) -> Run:
    """How far guesses are from what the held-out clients trained, on average over them."""
    figures = np.array([_errors(job, guess, true) for guess, true in zip(guesses, job.held_out, strict=True)]).mean(0)
    arm = replace(run.arm, label=label, paper={})
    return replace(run, arm=arm, figures=dict(zip((MAE, NORMALISED, SPREAD), figures.tolist(), strict=True)))


def _errors(job: Trained, guess: State, true: State) -> tuple[float, float, float]:
    last_block = {name: true[name] for name in job.last}
    guessed, trained = (torch.cat([each[name].flatten() for name in job.last]) for each in (guess, last_block))
    return *weight_error(guess, last_block), float(guessed.std() / trained.std())
