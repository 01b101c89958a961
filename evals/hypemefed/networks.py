"""The hypernetworks of a finished job, and what they make of its model."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks
from fedscale_ext.methods.hypemefed.measures import weight_error
from fedscale_ext.methods.hypemefed.params import HypeMeFedParams
from fedscale_ext.methods.hypemefed.rescaling import trained_norms
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.models.multi_exit.family import num_exits
from fedscale_ext.util.tensor_files import read_tensors

State = dict[str, torch.Tensor]
_JSON, _METHOD = "checkpoint.json", "tensor.method/"


def whole_model(log_dir: Path) -> tuple[ModelSpec, State, int]:
    """The network with all its exits: spec, state, and the number of exits."""
    for path in sorted((log_dir / "models").glob("*.safetensors")):
        spec, state = load_model(path)
        if spec["exits"] == num_exits(spec) and spec["heads"] == "all":
            return spec, dict(state), num_exits(spec)
    raise FileNotFoundError(f"{log_dir / 'models'} holds no network with all its exits")


def params_of(log_dir: Path) -> HypeMeFedParams:
    """The job's hyperparameters."""
    return HypeMeFedParams(**json.loads((log_dir / "header.json").read_text(encoding="utf-8"))["params"])


def norms_of(networks: HyperNetworks, params: HypeMeFedParams, states: Sequence[State], start: State,
             ) -> dict[str, float] | None:  # fmt: skip
    """What the job scales generated tensors to, where it does: the mean norm of those in ``states``, all alike."""
    if not params.rescale:
        return None
    names = [name for pair in networks.pairs for name in pair.names(pair.target)]
    return trained_norms([(state, 1.0) for state in states], names, start)


def hypernetworks(log_dir: Path) -> HyperNetworks:
    """As the job's last checkpoint has them."""
    shapes = {name: tuple(tensor.shape) for name, tensor in whole_model(log_dir)[1].items()}
    networks = HyperNetworks(shapes, params_of(log_dir), torch.Generator().manual_seed(0))
    tensors, _ = read_tensors(max((log_dir / "checkpoints").glob("checkpoint-*.safetensors")))
    held = json.loads(tensors[_JSON].numpy().tobytes())["data"]["components"]["method"]
    of_method = {name.removeprefix(_METHOD): tensor for name, tensor in tensors.items() if name.startswith(_METHOD)}
    networks.load_state(of_method, held)
    return networks


def up_to(state: State, depth: int) -> State:
    """What a client of this level holds of a model."""
    beyond = [name for name in state if name.startswith(("block", "exit")) and _number(name) > depth]
    return {name: tensor for name, tensor in state.items() if name not in beyond}


def last_layer_errors(log_dir: Path) -> dict[int, float]:
    """Normalised MAE of the last block's convolutions, generated from the model up to each depth (Figure 14b)."""
    _, state, depth = whole_model(log_dir)
    depths, networks = range(1, depth), hypernetworks(log_dir)
    norms = norms_of(networks, params_of(log_dir), [state], state)
    generated = networks.generate([up_to(state, one) for one in depths], norms)
    errors = {}
    for one, weights in zip(depths, generated, strict=True):
        last_block = {name: weight for name, weight in weights.items() if name.startswith(f"block{depth}.")}
        if last_block:
            errors[one] = weight_error(last_block, {name: state[name] for name in last_block})[1]
    return errors


def _number(name: str) -> int:
    return int("".join(filter(str.isdigit, name.partition(".")[0])))
