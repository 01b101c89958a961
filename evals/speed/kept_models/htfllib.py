"""HtFLlib on the work: its own servers and clients, from a checkout that stays as it is.

HtFLlib's `main.py` imports all its methods with what each needs (generators of images among them), so that this script
stands in its place: it makes the arguments that `main.py` makes, and one server. Each client begins with the weights
that our clients begin with, by HtFLlib's own option for pretrained models. Its files of data and of models are pickles,
which PyTorch reads since 2.6 only if TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set. All lie in the run's folder.
"""

import argparse
import importlib
import os
import random
import sys
import time
from collections import defaultdict
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from evals.speed.kept_models.work import BATCH, CLIENTS, RATE, SHARE, Split, Work, initial
from evals.speed.task import Spans
from fedscale_ext import compat

SERVERS = {
    "local": ("Local", "serverlocal", "Local"),
    "fedproto": ("FedProto", "serverproto", "FedProto"),
    "lgfedavg": ("LG-FedAvg", "serverlg", "LG_FedAvg"),
    "fml": ("FML", "serverfml", "FML"),
}  # its name for the method, its module, the server's class
NAME = "work"  # of the data set


def order() -> list[int]:
    """Our clients, counted from 0, in HtFLlib's order, which deals the networks in turn."""
    half = CLIENTS // 2
    return [number // 2 + half * (number % 2) for number in range(CLIENTS)]


def write_data(work: Work) -> None:
    """Write each client's samples in HtFLlib's format."""
    with np.load(work.data / "clients.npz") as arrays:
        for split in ("train", "test"):
            folder = work.out / "dataset" / NAME / split
            folder.mkdir(parents=True)
            x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
            for number, client in enumerate(order()):
                np.savez_compressed(folder / f"{number}.npz", data=np.array({"x": x[client], "y": y[client]}))


def arguments(work: Work) -> argparse.Namespace:
    """The arguments that its servers and clients read: its command line's defaults where we ask for nothing."""
    return argparse.Namespace(
        goal="test", device="cpu", dataset=NAME, num_classes=work.about["classes"], batch_size=BATCH,
        local_learning_rate=RATE, global_rounds=work.rounds + (not work.tested), local_epochs=1,
        num_clients=CLIENTS, join_ratio=1.0, random_join_ratio=False, few_shot=0, time_select=False,
        algorithm=SERVERS[work.method][0], time_threthold=10000, top_cnt=100, auto_break=False,
        eval_gap=1 if work.tested else work.rounds + 2, client_drop_rate=0.0, train_slow_rate=0.0,
        send_slow_rate=0.0, feature_dim=work.specs()[0]["hidden"], lamda=1.0, alpha=SHARE, beta=SHARE,
        models=["larger()", "smaller()"], global_model="smaller()", models_folder_name="begin",
        save_folder_name="temp",
    )  # fmt: skip


def server(work: Work) -> Any:
    """Its server with its clients, all with the initial weights of our job."""
    modules = importlib.import_module("flcore.trainmodel.models")
    base = importlib.import_module("flcore.clients.clientbase")
    _, name, kind = SERVERS[work.method]
    given, specs = arguments(work), work.specs()
    for call, spec in zip(("larger", "smaller"), specs, strict=True):
        setattr(modules, call, lambda spec=spec: Split(spec))

    def loaded(model: torch.nn.Module, which: int) -> torch.nn.Module:
        state = initial(specs[which], work.seed)
        names = [name for name in state if name.startswith("linear2.")]
        last = {name.removeprefix("linear2."): state.pop(name) for name in names}
        model.base.load_state_dict(state)
        model.head.load_state_dict(last)
        return model

    for number in range(CLIENTS):
        model = loaded(modules.BaseHeadSplit(given, number), number % 2)
        base.save_item(model, f"Client_{number}", "model", given.models_folder_name)
    made = getattr(importlib.import_module(f"flcore.servers.{name}"), kind)(given, 0)
    if work.method == "fml":
        shared = loaded(modules.BaseHeadSplit(given, is_global=True), 1)
        base.save_item(shared, made.role, "global_model", made.save_folder_name)
    return made


def shuffle(made: Any) -> None:
    """Let clients take their samples in another order in each epoch, in this process alone."""

    def loaded(load: Any) -> DataLoader:
        return DataLoader(load().dataset, BATCH, drop_last=True, shuffle=True)

    for client in made.clients:
        client.load_train_data = partial(loaded, client.load_train_data)


def follow_paper(made: Any, weighted: bool) -> None:
    """Let FedProto's clients take their prototypes from a pass after training (Algorithm 1), in this process alone.

    Args:
        made: The server.
        weighted: Whether it averages clients' prototypes of a class by their samples, too.

    """
    base = importlib.import_module("flcore.clients.clientbase")
    counts: dict[int, dict[int, int]] = {}

    def with_pass(client: Any, train: Any) -> None:
        train()
        model = base.load_item(client.role, "model", client.save_folder_name).eval()
        with torch.no_grad():
            batches = [(model.base(x), y) for x, y in client.load_train_data()]
        features, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        counts[client.id] = {label: int((labels == label).sum()) for label in labels.unique().tolist()}
        means = {label: features[labels == label].mean(0) for label in counts[client.id]}
        base.save_item(means, client.role, "protos", client.save_folder_name)

    def averaged() -> None:
        means: dict[int, Any] = defaultdict(list)  # its clients read a list as a class that nobody has
        sent = {each.id: base.load_item(each.role, "protos", each.save_folder_name) for each in made.selected_clients}
        for label in {label for each in counts.values() for label in each}:
            having = [each for each in sent if label in counts[each]]
            total = sum(counts[each][label] for each in having)
            means[label] = torch.stack([sent[each][label] * counts[each][label] / total for each in having]).sum(0)
        base.save_item(means, made.role, "global_protos", made.save_folder_name)

    for client in made.clients:
        client.train = partial(with_pass, client, client.train)
    if weighted:
        made.receive_protos = averaged


def run(work: Work) -> None:
    """Train, and write when each round began and ended, and what the clients' tests gave."""
    assert work.htfllib is not None
    compat.declare_torchvision_operators()
    sys.path.insert(0, str(work.htfllib / "system"))
    write_data(work)
    folder = work.out / "system"  # it looks for ../dataset and writes ../results
    folder.mkdir()
    os.chdir(folder)
    torch.manual_seed(work.seed)
    np.random.seed(work.seed)
    random.seed(work.seed)
    made, began = server(work), []
    if "shuffled" in work.changes:
        shuffle(made)
    if "after" in work.changes:
        follow_paper(made, "weighted" in work.changes)
    select = made.select_clients

    def noting() -> Any:  # the first thing of each round
        began.append(time.time())
        return select()

    made.select_clients = noting
    made.train()
    # Its global_rounds R are R + 1 rounds. Each tests, then trains: test r is that of r rounds of training, and the
    # last round's training is not tested. Without tests the first round, which tests, does not count.
    spans = Spans(list(pairwise(began)))
    accuracy = list(enumerate(map(float, made.rs_test_acc))) if work.tested else []
    spans.write(work.out, warm_up=1, accuracy=accuracy, threads=torch.get_num_threads())


if __name__ == "__main__":
    run(Work.asked())
