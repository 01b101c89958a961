"""FedorAS's equations computed again from what a job recorded, in plain NumPy: none of the package's mathematics.

    python evals/fedoras/check_equations.py LOG_DIR

LOG_DIR is the log folder of a finished FedorAS job with `record_internals: True`, `checkpoint_keep: 4` (or more; all
rounds, to check each) and the default resolutions of the paper's open points. Checked:

* of each client of stage 1, that the examples of each layer's operators add up to those that it trained on, that it
  held what it trained, within its share of the supernet's bytes (Eq 1), and that its mean path is within its budget;
* how often operators were drawn, over all clients of a tier, beside an own sampler of Eqs 2 and 3: the difference in
  standard deviations;
* OPA (Eq 5) of every tensor, and FedAvg in fine-tuning, from clients' weights;
* that a search hands the supernet's tensors to its models, and that the best path has the greatest score (Eq 6);
* the tiers' brackets, drawn anew from 100,000 random paths.

Checks that need weights are done for rounds whose internals and checkpoints are there. Exit code 1 where something is
wrong, or where no round of OPA could be checked.
"""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

TOLERANCE = {"opa": 1e-5, "fedavg": 1e-5, "inherited": 0.0, "examples": 0.0, "held": 0.0, "subspace": 0.0,
             "budget": 1e-9, "paths": 5.0, "best": 0.0, "brackets": 0.01}  # fmt: skip
DEFAULTS = {"aggregation": "opa", "opa_scope": "all", "subspace_per": "client", "dynamic_budget": 0.0,
            "upper_only": False}  # fmt: skip
MASSES = {"cnn_s": (0.925, 0.3), "rnn": (0.77, 0.01), "rnn_positions": (0.77, 0.01)}  # top and low; of others .95, 0
PRINTED = {"cnn_l": (121.5, 224.2, 326.9, 718.2), "cnn_s": (5.0, 7.6, 10.2, 20.1),
           "rnn": (7.95, 12.93, 17.9, 22.9, 33.9)}  # fmt: skip
DRAWS, PATHS = 2000, 100_000  # of a client's paths, and for brackets
OPERATOR = re.compile(r"layers\.(\d+)\.([^.]+)\.")
errors = defaultdict(list)


def check(what, where, recorded, expected):
    """Note the largest difference as a share of the largest entry."""
    recorded, expected = np.asarray(recorded, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    size = max(np.abs(expected).max(initial=0), 1e-6)
    same = recorded.shape == expected.shape
    errors[what].append((np.abs(recorded - expected).max(initial=0) / size if same else np.inf, where))


def below(tensors, prefix):
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def operator_of(name):
    match = OPERATOR.match(name)
    return (int(match[1]), match[2]) if match else None


def bytes_of(state):
    return sum(value.nbytes for value in state.values())


def drawn(macs, fixed, budget, rng):
    """One path by Equation 3, int [layers]: layers that no free operator has first; what the cheapest operators of the
    layers to come cost is set aside."""
    least = np.nanmin(macs, axis=1)
    order = sorted(rng.permutation(len(macs)).tolist(), key=lambda layer: least[layer] == 0)
    room, path = budget - fixed - least.sum(), np.zeros(len(macs), dtype=int)
    for layer in order:
        fitting = np.flatnonzero(macs[layer] - least[layer] <= room)
        path[layer] = rng.choice(fitting)
        room -= macs[layer, path[layer]] - least[layer]
    return path


def table(entry):
    """MACs [layers, operators], NaN where there is no operator, or none that runs."""
    macs = np.array(entry["macs"], dtype=np.float64)
    return np.where(macs < 0, np.nan, macs), entry["fixed"]


class Stage1:
    """What clients drew, over all rounds, beside what they should have."""

    def __init__(self, tables, budgets, config, params, free):
        self.tables, self.budgets, self.free = tables, budgets, free
        self.batch, self.least, self.share = config["batch_size"], params["opa_min_clients"], params["subspace"]
        self.differences, self.variances = defaultdict(float), defaultdict(float)
        self.rng = np.random.default_rng(0)

    def client(self, where, tier, state, examples, trained, total):
        """``state``: what it returned; operators without tensors are always held."""
        entry = self.tables[tier]
        macs, fixed = table(entry)
        held = {operator_of(name) for name in state} | self.free
        held_operators = np.array([[(layer, name) in held for name in names] + [False] * (macs.shape[1] - len(names))
                        for layer, names in enumerate(entry["ops"])])  # fmt: skip
        check("examples", where, examples.sum(1), np.full(len(macs), trained))
        check("held", where, examples[~held_operators].sum(), 0)
        check("subspace", where, max(0, bytes_of(state) - self.share * total), 0)
        usable = np.where(held_operators, macs, np.nan)
        budget = 1e6 * self.budgets[tier]
        mean = fixed + (np.nan_to_num(usable) * examples).sum() / trained
        check("budget", where, max(0.0, mean / budget - 1), 0)
        counts = np.zeros(macs.shape)
        for _ in range(DRAWS):
            counts[np.arange(len(macs)), drawn(usable, fixed, budget, self.rng)] += 1
        likely = counts / DRAWS
        spread = likely * (1 - likely)
        for layer, column in np.argwhere(held_operators).tolist():
            key = tier, layer, column
            self.differences[key] += examples[layer, column] - trained * likely[layer, column]
            # a step's examples are drawn together; our own draws have an error, too
            self.variances[key] += spread[layer, column] * (self.batch * trained + trained**2 / DRAWS)

    def check_draws(self):
        for key, difference in self.differences.items():
            scale = np.sqrt(self.variances[key])
            rare = scale < 3 * self.batch  # too few draws for a normal distribution
            if not rare:
                errors["paths"].append((abs(difference) / scale, "tier {}, layer {}, operator {}".format(*key)))


def check_opa(t, entry, old, new, clients, least):
    """Equation 5 for operators, FedAvg for what all paths share."""
    columns = {(layer, name): column for layer, names in enumerate(entry["ops"]) for column, name in enumerate(names)}
    for name, recorded in new.items():
        key = operator_of(name)
        weighted = []
        for state, examples, trained in clients:
            weight = trained if key is None else examples[key[0], columns[key]]
            if name in state and weight:
                weighted.append((weight, state[name].astype(np.float64)))
        enough = weighted and (key is None or len(weighted) >= least)
        expected = sum(w * x for w, x in weighted) / sum(w for w, _ in weighted) if enough else old[name]
        check("opa", f"round {t}, {name}", recorded, expected if recorded.dtype.kind == "f" else np.round(expected))


def check_fedavg(t, new, clients):
    total = sum(weight for _, weight in clients)
    for name, recorded in new.items():
        expected = sum(weight * state[name].astype(np.float64) for state, weight in clients) / total
        check("fedavg", f"round {t}, {name}", recorded, expected if recorded.dtype.kind == "f" else np.round(expected))


def check_brackets(space, entry, budgets, params):
    """Budgets of the tiers in MMACs, where they were not given; whether they could be checked."""
    if params["brackets"]:
        return False
    macs, fixed = table(entry)
    top, low = MASSES.get(space, (0.95, 0.0))
    if space in PRINTED and abs(budgets[-1] / PRINTED[space][-1] - 1) < 0.01:
        check("brackets", "as printed", budgets, PRINTED[space])
        return True
    rng = np.random.default_rng(1)
    each = [rng.choice(row[~np.isnan(row)], PATHS) for row in macs]
    paths = np.sort(fixed + np.sum(each, axis=0))
    mass = np.cumsum(paths) / paths.sum()
    start = paths[np.searchsorted(mass, low)] if low else fixed
    edges = np.linspace(start, paths[np.searchsorted(mass, top)], len(budgets) - (low > 0))[low == 0 :]
    check("brackets", "drawn anew", budgets, [*(edges / 1e6), (fixed + np.nanmax(macs, axis=1).sum()) / 1e6])
    return True


def main(log_dir):
    if not (log_dir / "summary.json").is_file():
        sys.exit(f"{log_dir} has no summary.json: name the log folder of a finished job")
    header = json.loads((log_dir / "header.json").read_text(encoding="utf-8"))
    if header["method"] != "fedoras":
        sys.exit(f"{log_dir} is a job of {header['method']}, not of fedoras")
    params, config = header["params"], header["config"]
    other = [name for name, value in DEFAULTS.items() if params.get(name) != value]
    if other:
        sys.exit(f"{log_dir} is no FedorAS job of the default resolutions; it differs in {', '.join(other)}")
    if not (log_dir / "internals.jsonl").is_file():
        sys.exit(f"{log_dir} has no internals.jsonl: train with record_internals: True")
    lines = [json.loads(line) for line in (log_dir / "internals.jsonl").read_text(encoding="utf-8").splitlines()]
    tiers = json.loads((log_dir / "summary.json").read_text(encoding="utf-8"))["results"]["tiers"]
    budgets, tables = [tier["budget_mmacs"] for tier in tiers], lines[0]["tables"]
    if not check_brackets(config["model"], tables[0], budgets, params):
        print("the tiers' budgets were given: brackets are not checked")
    for tier in filter(lambda tier: tier["search"], tiers):
        scores = [score for _, score in tier["search"]["scores"] if score is not None]
        check("best", f"tier {tier['tier']}", tier["search"]["score"], max(scores))
    checkpoints = {int(path.stem.rpartition("-")[2]): path for path in log_dir.glob("checkpoints/*.safetensors")}
    stage1, checked_rounds = None, 0
    for entry in lines:
        t, stage = entry["round"], entry["stage"]["name"]
        internal = log_dir / "internals" / f"round-{t:06d}.safetensors"
        if not (internal.is_file() and t in checkpoints):
            continue
        states, after = load_file(internal), load_file(checkpoints[t])
        client_states = {client: below(states, f"client/{client}/") for client in entry["samples"]}
        if stage != "supernet":
            key = f"tier{entry['stage']['tier'] + 1}" + ("_twin" if stage == "twin" else "")
            new = below(after, f"tensor.pool/{key}/")
            check_fedavg(t, new, [(client_states[client], weight) for client, weight in entry["samples"].items()])
            continue
        new = below(after, "tensor.pool/supernet/")
        if stage1 is None:
            named = {operator_of(name) for name in new}
            free = {(layer, name) for layer, names in enumerate(tables[0]["ops"]) for name in names} - named
            stage1 = Stage1(tables, budgets, config, params, free)
        clients = []
        for client, state in client_states.items():
            examples, trained = np.array(entry["examples"][client]), entry["trained"][client]
            stage1.client(
                f"round {t}, client {client}", entry["tiers"][client], state, examples, trained, bytes_of(new)
            )
            clients.append((state, examples, trained))
        if t - 1 in checkpoints:
            old = below(load_file(checkpoints[t - 1]), "tensor.pool/supernet/")
            check_opa(t, tables[0], old, new, clients, params["opa_min_clients"])
            checked_rounds += 1
    searched = params["supernet_rounds"] + 1
    if searched in checkpoints:
        after = load_file(checkpoints[searched])
        whole = below(after, "tensor.pool/supernet/")
        for number in range(1, len(tiers) + 1):
            for name, value in below(after, f"tensor.pool/tier{number}/").items():
                check("inherited", f"tier {number}, {name}", value, whole[name])
    if stage1 is not None:
        stage1.check_draws()
    print(f"{len(lines)} rounds, OPA of {checked_rounds} of them checked")
    bad = False
    for what, list_ in errors.items():
        worst, where = max(list_, key=lambda one: one[0])
        wrong = "" if worst <= TOLERANCE[what] else f"WRONG: {where}"
        bad |= bool(wrong)
        unit = "largest of so many standard deviations" if what == "paths" else "largest error"
        print(f"{what:12}{len(list_):7} checked, {unit} {worst:.1e}  {wrong}")
    if bad:
        sys.exit("the equations do not hold: see what is WRONG")
    if not checked_rounds:
        sys.exit("too little to judge by: no round has its tensors and both checkpoints; train with checkpoint_keep: 4")
    print("the equations hold")


if __name__ == "__main__":
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
    elif len(sys.argv) != 2:
        sys.exit(__doc__)
    else:
        main(Path(sys.argv[1]))
