"""HypeMeFed's rounds computed again from what a job recorded, in plain NumPy: none of the package's mathematics.

    python evals/hypemefed/check_equations.py LOG_DIR

LOG_DIR is the log folder of a HypeMeFed job with `record_internals: True`, `checkpoint_keep: 2` (or more), and the
default resolutions of the paper's open points. Checked for the rounds whose weights and checkpoints are there:

* the hypernetworks' training (section 4.4) on the round's clients: each epoch takes each of them once; in the order
  that the job recorded, Adam on the squared error of the plain product, its last loss and the values that it ends with;
* the weights generated for each client that lacks some (sections 4.3 and 4.4), from its own by decomposition, signs,
  both networks and their product, scaled to the norm of trained ones where the job does so, block after block;
* the new model: each tensor the mean over those who trained or were given it, by samples.

Everything is in float64 here and in float32 there: means agree to 1e-5 of a tensor's size, losses to 1e-3, generated
weights in norm to 1e-2, and what the values moved by to 0.1: a ReLU that is on in one and off in the other shows there.
Exit code 1 where something does not, or where no round could be checked.
"""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

TOLERANCE = {"orders": 0.0, "mean": 1e-5, "loss": 1e-3, "values": 0.1, "generated": 1e-2}
DEFAULTS = {"missing": "generated", "variant": "low_rank", "loss": "weight", "optimizer": "reset", "generate": "conv",
            "weighted": True, "multi_exit": True}  # fmt: skip
CONV = re.compile(r"block(\d+)\.(.+)\.weight")
errors = defaultdict(list)


def check(what, where, recorded, expected):
    """Note the norm of the difference as a share of what is expected; of the largest entry for means."""
    recorded, expected = np.asarray(recorded, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    size = (lambda x: np.abs(x).max(initial=0)) if what == "mean" else np.linalg.norm
    same = recorded.shape == expected.shape
    errors[what].append((size(recorded - expected) / max(size(expected), 1e-12) if same else np.inf, where))


def below(tensors, prefix):
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def pairs(state):
    """(source, target) of the layers that are generated, in the order of their blocks."""
    convolutions = {}
    for name, value in state.items():
        match = CONV.fullmatch(name)
        if match and value.ndim == 4:
            convolutions[int(match[1]), match[2]] = name
    before = [(convolutions.get((block - 1, layer)), name) for (block, layer), name in sorted(convolutions.items())]
    return [(source, name) for source, name in before if source and state[source].shape[2:] == state[name].shape[2:]]


def taps(kernel):
    """kh and kw as the matrix has them: those of a kernel along one axis are among the inputs."""
    return kernel[::-1] if kernel[0] == 1 else kernel


def matrix(weight):
    """[O, I, kh, kw] -> [I kh, O kw]."""
    outputs, inputs = weight.shape[:2]
    height, width = taps(weight.shape[2:])
    weight = weight.reshape(outputs, inputs, height, width)
    return weight.astype(np.float64).transpose(1, 2, 0, 3).reshape(inputs * height, outputs * width)


def weight_of(a, shape):
    outputs, inputs = shape[:2]
    height, width = taps(shape[2:])
    return a.reshape(inputs, height, outputs, width).transpose(2, 0, 1, 3).reshape(shape)


def rows_of(a, k):
    """P^T and Q of the k largest components, the largest entry of each left vector positive."""
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    k = len(s) if k == "all" else min(k, len(s))
    u, s, vt = u[:, :k], s[:k], vt[:k]
    signs = np.sign(u[np.abs(u).argmax(0), np.arange(k)])
    return (u * signs * np.sqrt(s)).T, vt * signs[:, None] * np.sqrt(s)[:, None]


def layers(values, source, target, hidden):
    """The two networks' [w1, b1, w2, b2], as views of one vector."""
    weights, begin = [], 0
    for into, out in zip(source, target, strict=True):
        parts = []
        for shape in ((hidden, into), (hidden,), (out, hidden), (out,)):
            parts.append(values[begin : begin + np.prod(shape)].reshape(shape))
            begin += np.prod(shape)
        weights.append(parts)
    assert begin == len(values)
    return weights


def forward(network, rows):
    w1, b1, w2, b2 = network
    before = rows @ w1.T + b1
    return before, np.maximum(before, 0) @ w2.T + b2


def trained(values, epochs, sides, params):
    """Adam, batch 1, on the samples of each epoch in their order; the values and the mean loss of the last one."""
    values, first, second, step = values.copy(), 0.0, 0.0, 0
    for samples in epochs:
        losses = []
        for rows, target in samples:
            networks, gradient = layers(values, *sides, params["hidden"]), np.zeros_like(values)
            (pre_p, p), (pre_q, q) = (forward(*each) for each in zip(networks, rows, strict=True))
            error = p.T @ q - target
            losses.append(np.mean(error**2))
            by = 2 / error.size * (q @ error.T), 2 / error.size * (p @ error)
            into = layers(gradient, *sides, params["hidden"])
            for (_, _, w2, _), out, pre, x, g in zip(networks, into, (pre_p, pre_q), rows, by, strict=True):
                inner = (g @ w2) * (pre > 0)
                out[0][:], out[1][:], out[2][:], out[3][:] = (
                    inner.T @ x,
                    inner.sum(0),
                    g.T @ np.maximum(pre, 0),
                    g.sum(0),
                )
            step += 1
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            values -= params["lr"] * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return values, np.mean(losses)


def mean_norm(target, clients, weights, old):
    """By samples, over the clients that trained a layer; that of the round's start where there are none."""
    held = [(weights[c], np.linalg.norm(state[target])) for c, state in clients.items() if target in state]
    return sum(w * norm for w, norm in held) / sum(w for w, _ in held) if held else np.linalg.norm(old[target])


def check_round(entry, before, after, states, params, rounds):
    """One round from the checkpoints on both sides of it and its clients' weights; whether something was generated."""
    t = entry["round"]
    clients = {c: below(states, f"client/{c}/") for c in entry["samples"]}
    prefix = max((name.rpartition("/")[0] for name in after if name.startswith("tensor.pool/")),
                 key=lambda pool: len(below(after, f"{pool}/"))) + "/"  # fmt: skip
    old, new = below(before, prefix), below(after, prefix)
    nets = {name: value.astype(np.float64) for name, value in below(after, "tensor.method/").items()}
    generated = {c: {} for c in clients}
    for source, target in pairs(old):
        name = target.removesuffix(".weight")
        sides = matrix(old[source]).shape, matrix(old[target]).shape
        start = below(before, "tensor.method/")[f"{name}.values"].astype(np.float64)
        samples = {int(c): (rows_of(matrix(state[source]), params["k"]), matrix(state[target]))
                   for c, state in clients.items() if source in state and target in state}  # fmt: skip
        if samples:
            orders = entry["hypernetwork_orders"][name]
            check("orders", f"round {t}, {name}", [sorted(o) for o in orders], [sorted(samples)] * params["epochs"])
            values, loss = trained(start, [[samples[c] for c in order] for order in orders], sides, params)
            check("loss", f"round {t}, {name}", entry["hypernetwork_loss"][name], loss)
            check("values", f"round {t}, {name}", nets[f"{name}.values"] - start, values - start)
        if t <= params["warmup"] * rounds:
            continue
        networks = layers(nets[f"{name}.values"], *sides, params["hidden"])
        for c, state in clients.items():
            held = {**state, **generated[c]}
            if target not in state and source in held:
                (_, p), (_, q) = map(forward, networks, rows_of(matrix(held[source]), params["k"]))
                weight = weight_of(p.T @ q, old[target].shape)
                if params["rescale"]:
                    weight *= mean_norm(target, clients, entry["samples"], old) / np.linalg.norm(weight)
                generated[c][target] = weight
                recorded = below(states, f"generated/{c}/").get(target, np.zeros(0))
                check("generated", f"round {t}, client {c}, {target}", recorded, generated[c][target])
    for name, recorded in new.items():
        weighted = [(entry["samples"][c], state[name]) for c, state in clients.items() if name in state]
        weighted += [(params["generated_weight"] * entry["samples"][c], states[key]) for c in clients
                     if (key := f"generated/{c}/{name}") in states]  # fmt: skip
        weighted = [(w, value) for w, value in weighted if w > 0]
        mean = sum(w * value.astype(np.float64) for w, value in weighted) / sum(w for w, _ in weighted) \
            if weighted else old[name]  # fmt: skip
        check("mean", f"round {t}, {name}", recorded, mean if recorded.dtype.kind == "f" else np.round(mean))


def main(log_dir):
    if not (log_dir / "header.json").is_file():
        sys.exit(f"{log_dir} has no header.json: name the log folder of a job")
    header = json.loads((log_dir / "header.json").read_text(encoding="utf-8"))
    if header["method"] != "hypemefed":
        sys.exit(f"{log_dir} is a job of {header['method']}, not of hypemefed")
    params = header["params"]
    other = [name for name, value in DEFAULTS.items() if params.get(name) != value]
    other += ["precision"] * (params.get("precision", "float32") != "float32")
    if other:
        sys.exit(f"{log_dir} is no HypeMeFed job of the default resolutions; it differs in {', '.join(other)}")
    if not (log_dir / "internals.jsonl").is_file():
        sys.exit(f"{log_dir} has no internals.jsonl: train with record_internals: True")
    lines = (log_dir / "internals.jsonl").read_text(encoding="utf-8").splitlines()
    checked = 0
    for entry in map(json.loads, lines):
        t = entry["round"]
        paths = [log_dir / "checkpoints" / f"checkpoint-{n:06d}.safetensors" for n in (t - 1, t)]
        internal = log_dir / "internals" / f"round-{t:06d}.safetensors"
        if all(path.is_file() for path in (*paths, internal)):
            check_round(entry, *map(load_file, (*paths, internal)), params, header["config"]["rounds"])
            checked += 1
    print(f"{len(lines)} rounds, {checked} of them with their tensors")
    missing = {"mean", "values", "generated"} - errors.keys()
    bad = False
    for what, differences in errors.items():
        worst, where = max(differences, key=lambda one: one[0])
        wrong = "" if worst <= TOLERANCE[what] else f"WRONG: {where}"
        bad |= bool(wrong)
        print(f"{what:12}{len(differences):7} checked, largest error {worst:.1e}  {wrong}")
    if bad:
        sys.exit("the equations do not hold: see what is WRONG")
    if missing:
        sys.exit(f"too little to judge by: nothing was there to check {', '.join(sorted(missing))} by; train with "
                 "checkpoint_keep: 2, on clients that lack layers")  # fmt: skip
    print("the equations hold")


if __name__ == "__main__":
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
    elif len(sys.argv) != 2:
        sys.exit(__doc__)
    else:
        main(Path(sys.argv[1]))
