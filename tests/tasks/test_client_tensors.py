"""Tensors that clients return are only those of the round."""

import torch

from fedscale_ext.core.types import WorkItem
from fedscale_ext.tasks.client_tensors import ReturnedTensors


def test_a_round_begins_without_the_tensors_of_the_round_before() -> None:
    returned = ReturnedTensors()
    for round, clients in enumerate(([1, 2], [3]), start=1):
        items = [WorkItem(client, "m") for client in clients]
        returned.begin(items)
        assert not returned.of and all(returned.outgoing(item) is None for item in items)
        for item in items:
            returned.take(round, item, {"logits": torch.full((2,), float(item.client))})
        assert {client: tensors["logits"].tolist() for client, tensors in returned.of.items()} == {
            client: [client, client] for client in clients
        }
