"""FedTrans's equations computed again from what a job recorded, in plain NumPy: none of the package's mathematics.

    python evals/fedtrans/check_equations.py LOG_DIR

LOG_DIR is the log folder of a FedTrans job with `record_internals: True` and `checkpoint_keep: 4` (or more), and
the default resolutions of the paper's open points. Checked for all rounds: assignment probabilities (Eqs 2, 3),
standardised losses and utilities (Eq 4), degree of convergence (Eq 1); from tensors for the rounds whose
checkpoints are there: similarities, activeness, and soft aggregation (Eq 5) of every model. Exit code 1 where
anything is off by more than 1e-5 of its size, or where fewer than three rounds have their tensors.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

TOLERANCE = 1e-5
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
DEFAULTS = {"sharing": "soft", "decay": "on", "similarity": "lineage", "sim_reduce": "mean",
            "normalise": "decayed", "align": "lift", "l2s": False, "warmup": "on", "server_opt": "avg",
            "doc_loss": "newest"}  # fmt: skip
errors = defaultdict(list)


def check(what, where, recorded, expected):
    """Note the difference of two figures, lists or tensors, as a share of the larger one's largest entry."""
    recorded, expected = np.asarray(recorded, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    size = max(np.abs(expected).max(initial=0), np.abs(recorded).max(initial=0), 1e-6)
    same = recorded.shape == expected.shape
    errors[what].append((np.abs(recorded - expected).max(initial=0) / size if same else np.inf, where))


def cell_of(name):
    return name.split(".")[1] if name.startswith("cells.") else None


def cell_sizes(state):
    sizes = defaultdict(int)
    for name, value in state.items():
        if cell_of(name) and not name.endswith(BUFFERS):
            sizes[cell_of(name)] += value.size
    return sizes


def similarities(states):
    """sim(M_i, M_j): mean over the newer model's cells of #param(older) / #param(newer); 0 where inserted since."""
    sizes, matrix = [cell_sizes(state) for state in states], np.eye(len(states))
    for j, newer in enumerate(sizes):
        for i, older in enumerate(sizes[:j]):
            matrix[i, j] = matrix[j, i] = np.mean([older.get(cell, 0) / size for cell, size in newer.items()])
    return matrix


def lift(state, steps):
    """A model's weights in the shape of a descendant; cells inserted on the way have no counterpart."""
    state, inserted = dict(state), {cell for step in steps for cell in step["inserted"]}
    for step in steps:
        for name, shape in step["identities"].items():
            state[name] = np.eye(shape[0], shape[1]).reshape(shape)
        for name, axis, role, repeat in step["axes"]:
            if name not in state or cell_of(name) in inserted:
                continue
            rows = (np.array(step["g"])[:, None] * repeat + np.arange(repeat)).ravel()
            state[name] = np.take(state[name], rows, axis)
            if role == "in":
                shares = np.repeat(step["s"], repeat)
                state[name] = state[name] * shares.reshape([-1 if a == axis else 1 for a in range(state[name].ndim)])
    return {name: value for name, value in state.items() if cell_of(name) not in inserted}


def below(tensors, prefix):
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def check_records(rounds, params):
    """Eqs 1 to 4 over all rounds from the recorded losses, from utilities of zero on."""
    utilities, history, models = defaultdict(lambda: [0.0]), [], 1
    for entry in rounds:
        where = f"round {entry['round']}"
        for client, recorded in entry["probabilities"].items():
            u = utilities[client] + [utilities[client][-1]] * (models - len(utilities[client]))
            powers = [np.exp(u[k]) if k in entry["compatible"][client] else 0.0 for k in range(models)]
            check("probabilities (Eqs 2, 3)", f"{where}, client {client}", recorded, np.array(powers) / sum(powers))
            utilities[client] = u
        losses = entry.get("losses", {})
        mean, deviation = np.mean(list(losses.values()) or [0]), np.std(list(losses.values()) or [0])
        for client, loss in losses.items():
            standard = (loss - mean) / deviation if deviation > 1e-12 * max(1, abs(mean)) else 0.0
            check("standardised losses", f"{where}, client {client}", entry["standardised_losses"][client], standard)
            for k in entry["compatible"][client]:
                utilities[client][k] -= standard * entry["similarity"][k][entry["assignments"][client]]
            check("utilities (Eq 4)", f"{where}, client {client}", entry["utilities"][client], utilities[client])
        holders = [client for client in losses if entry["assignments"][client] == models - 1]
        if holders:
            history.append(np.average([losses[c] for c in holders], weights=[entry["samples"][c] for c in holders]))
        g, d = params["gamma"], params["delta"]
        enough, t = len(history) >= g + d, len(history) - 1
        if "doc" in entry:
            slopes = [(history[i - d] - history[i]) / d for i in range(t - g + 1, t + 1)] if enough else []
            recorded = [] if entry["doc"] is None else [entry["doc"]]
            check("degree of convergence (Eq 1)", where, recorded, [np.mean(slopes)] if enough else [])
        if "child" in entry:
            history, models = [], models + 1


def check_tensors(log_dir, rounds, params, static_statistics):
    """Similarities, activeness and Eq 5 of the rounds whose checkpoint, and the one before, are there; without
    BatchNorm's running statistics where a test puts those of a federated pass in their place."""
    steps = [entry["child"]["transformations"] for entry in rounds if "child" in entry]
    births = [0] + [entry["round"] for entry in rounds if "child" in entry]
    checked = 0
    for entry in rounds:
        t, paths = entry["round"], []
        for number in (entry["round"] - 1, entry["round"]):
            paths.append(log_dir / "checkpoints" / f"checkpoint-{number:06d}.safetensors")
        internal = log_dir / "internals" / f"round-{t:06d}.safetensors"
        if not all(path.is_file() for path in [*paths, internal]):
            continue
        before, after, means = load_file(paths[0]), load_file(paths[1]), load_file(internal)
        n, checked = len(entry["similarity"]), checked + 1
        old = [below(before, f"tensor.pool/m{j}/") for j in range(n)]
        averaged = [below(means, f"mean/m{j}/") or old[j] for j in range(n)]
        sims = similarities(old)
        check("similarity", f"round {t}", entry["similarity"], sims)
        if below(means, f"mean/m{n - 1}/"):
            for cell, recorded in entry["activeness"].items():
                names = [name for name in old[-1] if cell_of(name) == cell and not name.endswith(BUFFERS)]
                w = [np.concatenate([s[-1][name].astype(float).ravel() for name in names]) for s in (old, averaged)]
                check(
                    "activeness",
                    f"round {t}, cell {cell}",
                    recorded,
                    np.linalg.norm(w[0] - w[1]) / np.linalg.norm(w[0]),
                )
        for j in range(n):
            total, weight = defaultdict(float), defaultdict(float)
            for i in range(j + 1):
                age = t - births[j] if params["decay_clock"] == "age" else t
                share = sims[i, j] * (params["eta"] ** age if i != j else 1.0)
                lifted = lift(averaged[i], [step for child in steps[i:j] for step in child])
                for name, value in lifted.items():
                    total[name], weight[name] = total[name] + share * value.astype(float), weight[name] + share
            for name, recorded in below(after, f"tensor.pool/m{j}/").items():
                if static_statistics and name.endswith(BUFFERS):
                    continue
                mixed = total[name] / weight[name]
                mixed = mixed if recorded.dtype.kind == "f" else np.round(mixed)
                check("soft aggregation (Eq 5)", f"round {t}, model m{j}, {name}", recorded, mixed)
    return checked


def main(log_dir):
    if not (log_dir / "header.json").is_file():
        sys.exit(f"{log_dir} has no header.json: name the log folder of a job")
    header = json.loads((log_dir / "header.json").read_text(encoding="utf-8"))
    if header["method"] != "fedtrans":
        sys.exit(f"{log_dir} is a job of {header['method']}, not of fedtrans")
    other = [name for name, value in DEFAULTS.items() if header["params"].get(name) != value]
    if other:
        sys.exit(f"{log_dir} is no FedTrans job of the default resolutions; it differs in {', '.join(other)}")
    if not (log_dir / "internals.jsonl").is_file():
        sys.exit(f"{log_dir} has no internals.jsonl: train with record_internals: True")
    lines = (log_dir / "internals.jsonl").read_text(encoding="utf-8").splitlines()
    rounds = [json.loads(line) for line in lines]
    check_records(rounds, header["params"])
    static_statistics = header["config"].get("bn_statistics") == "federated"
    checked = check_tensors(log_dir, rounds, header["params"], static_statistics)
    print(f"{len(rounds)} rounds, {checked} of them with their tensors, {len(rounds[-1]['similarity'])} models")
    bad = False
    for what, differences in errors.items():
        worst, where = max(differences, key=lambda one: one[0])
        wrong = "" if worst <= TOLERANCE else f"WRONG: {where}"
        bad |= bool(wrong)
        print(f"{what:32}{len(differences):7} checked, largest error {worst:.1e}  {wrong}")
    if bad:
        sys.exit(f"the equations do not hold: an error is above {TOLERANCE:g}")
    if checked < 3:
        sys.exit(f"too little to judge by: {checked} rounds have their tensors, three are needed; train with "
                 "checkpoint_keep: 4")  # fmt: skip
    print(f"the equations hold: no error above {TOLERANCE:g}")


if __name__ == "__main__":
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
    elif len(sys.argv) != 2:
        sys.exit(__doc__)
    else:
        main(Path(sys.argv[1]))
