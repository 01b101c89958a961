"""The server of methods whose clients keep models: types, bytes that are really sent, checks of what clients send."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import WorkItem
from fedscale_ext.methods.exchange.client import COUNTS, class_means
from fedscale_ext.methods.exchange.tensor_exchange import bytes_sent, mean_by_class
from fedscale_ext.tasks.answers.update_checks import Rejected
from fedscale_ext.transport import wire
from methods.exchange.exchange_harness import TYPES, WIDTH, answer, new_aggregator, play
from methods.harness import CLASSES

ROW, ALL = 4 * WIDTH, 4 * CLASSES  # bytes of a prototype, and of the numbers of samples by class


def test_types_of_different_widths_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"fedproto needs features of one width, and its types have 128 \(single_exit_"):
        new_aggregator("fedproto", tmp_path, representation=0)


def test_types_of_one_width_need_no_representation(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedproto", tmp_path, representation=0, types=["cnn_small"], ranges=["1-6"])
    assert aggregator.width == 28 and aggregator.final_layer("cnn_small").name == "linear2"


def test_a_client_counts_for_the_classes_that_it_has_sent(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedproto", tmp_path)
    (before,) = aggregator.assign(1, np.array([2]))
    assert (aggregator.download_bytes(before), aggregator.upload_bytes(before)) == (
        0,
        CLASSES * ROW + ALL,
    )  # not known yet: all classes
    (item,) = play(aggregator, 1, [2])
    assert aggregator.upload_bytes(item) == 2 * ROW + ALL
    (later,) = aggregator.assign(2, np.array([2]))
    assert aggregator.download_bytes(later) == 2 * (ROW + 4) and aggregator.upload_bytes(later) == 2 * ROW + ALL
    assert aggregator.upload_bytes(WorkItem(3, TYPES[0])) == CLASSES * ROW + ALL


def test_the_first_round_is_without_a_message(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedproto", tmp_path)
    assert [item.bytes for item in play(aggregator, 1)] == [0] * 6
    assert {item.bytes for item in aggregator.next_items()} == {3 * (ROW + 4)}


def test_a_pass_over_the_clients_samples_counts_as_work(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedproto", tmp_path)
    (item,) = aggregator.assign(1, np.array([4]))
    assert item.compute_fraction == 1.0 and item.forward_fraction == pytest.approx(40 / 10)  # 40 samples; 2 steps of 5


def test_what_a_client_sends_must_be_of_its_samples(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedproto", tmp_path)
    item = WorkItem(1, TYPES[0])
    right = answer(aggregator, item, 1)
    assert aggregator.sent_tensors.checked(item, wire.tensors_to_bytes(right)).keys() == right.keys()
    for wrong in (right[COUNTS] + 1, torch.tensor([11, -1, 0, 0, 0], dtype=torch.int32)):
        with pytest.raises(Rejected, match="numbers of samples by class are not those of its samples"):
            aggregator.sent_tensors.checked(item, wire.tensors_to_bytes({**right, COUNTS: wrong}))
    with pytest.raises(Rejected, match="a tensor is not finite"):
        aggregator.sent_tensors.checked(
            item, wire.tensors_to_bytes({**right, "prototypes": right["prototypes"] * float("nan")})
        )


def test_means_by_class_are_numpys() -> None:
    rng = np.random.default_rng(3)
    rows, labels = rng.normal(size=(9, 4)).astype(np.float32), np.array([0, 2, 2, 0, 4, 4, 4, 0, 2])
    means, counts = class_means(torch.from_numpy(rows), torch.from_numpy(labels), 5)
    assert counts.tolist() == [3, 0, 3, 0, 3]
    for each in (0, 2, 4):
        np.testing.assert_allclose(means[each].numpy(), rows[labels == each].mean(0), rtol=1e-6)
    assert not means[[1, 3]].any()


def test_clients_count_by_their_samples_of_a_class() -> None:
    rows = [torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[4.0, 8.0], [5.0, 5.0]])]
    means, counts = mean_by_class(rows, [torch.tensor([1, 0]), torch.tensor([2, 3])])
    assert means.tolist() == [[3.0, 6.0], [5.0, 5.0]] and counts.tolist() == [3, 3]


def test_tensors_without_counts_are_sent_whole() -> None:
    assert bytes_sent({"weight": torch.zeros(5, 3), "bias": torch.zeros(5)}) == 80
