"""Flower: its simulation on Ray, one client app per client, two actors of one CPU, FedAvg without evaluation."""

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional

from evals.speed.task import BATCH, CLIENTS, PROCESSES, RATE, Spans, Task, task
from evals.speed.workload import checksum, module, samples

WARM_UP = 1


class TimedFedAvg(FedAvg):
    """FedAvg that notes when a round is sent out and when it is averaged."""

    def __init__(self, spans: Spans) -> None:
        super().__init__(
            fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS
        )
        self.spans = spans

    def configure_train(self, *args, **named):
        self.spans.begin()
        return super().configure_train(*args, **named)

    def aggregate_train(self, *args, **named):
        result = super().aggregate_train(*args, **named)
        self.spans.end()
        return result


def client_app(model: str, data: Path) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        network = module(model, usual=True)
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = (array[context.node_config["partition-id"]] for array in samples(data, mapped=True))
        optimizer = torch.optim.SGD(network.parameters(), lr=RATE)
        for images, labels in zip(torch.tensor(x).split(BATCH), torch.tensor(y).split(BATCH), strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(network(images), labels).backward()
            optimizer.step()
        answer = {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
        return Message(content=RecordDict(answer), reply_to=message)

    return app


def server_app(asked: Task) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        torch.set_num_threads(1)
        spans = Spans()
        result = TimedFedAvg(spans).start(
            grid=grid,
            initial_arrays=ArrayRecord(module(asked.model, usual=True).state_dict()),
            num_rounds=asked.rounds + WARM_UP,
        )
        spans.write(asked.out, warm_up=WARM_UP, checksum=checksum(result.arrays.to_torch_state_dict().values()))

    return app


if __name__ == "__main__":
    wanted = task()
    run_simulation(
        server_app=server_app(wanted),
        client_app=client_app(wanted.model, wanted.data),
        num_supernodes=CLIENTS,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0},
            "init_args": {"num_cpus": PROCESSES, "include_dashboard": False},
        },
    )
