"""The floors of a comparison: the most frequent training label, each client's or of all, on its test samples."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.data.majority import (
    disjoint_clients,
    disjoint_note,
    majority_correct,
    majority_labels,
    most_frequent_correct,
)
from fedscale_ext.data.store import ClientRows
from fedscale_ext.metrics.summary import floors


def rows(owner: list[int], clients: int, start: int = 0) -> ClientRows:
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(np.array(owner, dtype=np.int64), minlength=clients)
    return ClientRows(order + start, np.concatenate([[0], np.cumsum(sizes)]))


def data_of(train: list[tuple[int, int]], test: list[tuple[int, int]], clients: int) -> Any:
    """Pairs of client (from 0 on) and label."""
    y = np.array([label for _, label in train + test], dtype=np.int64)
    train_clients, test_clients = ([client for client, _ in part] for part in (train, test))
    return SimpleNamespace(
        y=y, num_clients=clients, train=rows(train_clients, clients), test=rows(test_clients, clients, start=len(train))
    )


def test_each_client_predicts_its_own_most_frequent_label() -> None:
    train = [(0, 1), (2, 3), (0, 1), (0, 2), (2, 0)]  # client 1 has none, client 2 as many of 0 as of 3
    test = [(0, 1), (0, 2), (0, 1), (1, 0), (2, 3), (2, 0), (2, 0)]
    data = data_of(train, test, 4)
    assert majority_labels(data.train, data.y).tolist() == [1, -1, 0, -1]
    assert majority_correct(data).tolist() == [2, 0, 2, 0]


def test_all_clients_predict_the_most_frequent_label_of_all() -> None:
    train = [(0, 1), (0, 1), (0, 1), (1, 2), (1, 2), (2, 2), (2, 0), (1, 2)]  # label 2 four times, 1 three times
    test = [(0, 1), (0, 2), (1, 2), (1, 2), (2, 0), (3, 2)]
    data = data_of(train, test, 4)
    assert most_frequent_correct(data).tolist() == [1, 2, 0, 1]
    both = floors(majority_correct(data), most_frequent_correct(data), data.test.sizes)
    assert both["most_frequent"]["mean"] == (1 / 2 + 2 / 2 + 0 / 1 + 1 / 1) / 4
    assert both["most_frequent"]["sample_weighted"] == 4 / 6
    tie = data_of([(0, 3), (1, 1)], [(0, 1), (0, 3), (1, 1)], 2)
    assert most_frequent_correct(tie).tolist() == [1, 1]  # the smallest of equally frequent ones


def test_public_samples_and_test_samples_do_not_decide_the_label() -> None:
    data = data_of([(0, 0), (0, 0), (0, 1)], [(0, 1), (0, 1), (0, 0)], 1)
    data.y = np.append(data.y, [1, 1, 1, 1])  # rows that no client has
    assert most_frequent_correct(data).tolist() == [1]


def test_no_training_samples_at_all() -> None:
    assert most_frequent_correct(data_of([], [(0, 0)], 2)).tolist() == [0, 0]
    assert majority_correct(data_of([], [(0, 0)], 2)).tolist() == [0, 0]


PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30)


@given(PAIRS, PAIRS)
def test_it_is_what_counting_client_by_client_gives(train: list[tuple[int, int]], test: list[tuple[int, int]]) -> None:
    expected = []
    for client in range(4):
        counts = np.bincount([label for one, label in train if one == client] or [0], minlength=5)
        guess = int(counts.argmax()) if any(one == client for one, _ in train) else -1
        expected.append(sum(one == client and label == guess for one, label in test))
    assert majority_correct(data_of(train, test, 4)).tolist() == expected


def test_clients_whose_test_labels_are_none_of_their_training_labels_are_counted() -> None:
    train = [(0, 1), (0, 2), (1, 1), (3, 0), (4, 2)]
    test = [(0, 3), (0, 4), (1, 0), (1, 1), (2, 0), (4, 1)]  # client 2 has no training samples, client 3 no tests
    data = data_of(train, test, 5)
    data.num_classes = 5
    assert disjoint_clients(data) == 2  # clients 0 and 4
    assert (disjoint_note(data) or "").startswith("2 of 5 clients have no test label among their training labels")
    shared = data_of([(0, 1)], [(0, 1)], 1)
    shared.num_classes = 2
    assert disjoint_clients(shared) == 0 and disjoint_note(shared) is None
