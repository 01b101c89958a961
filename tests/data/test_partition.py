import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.dirichlet import dirichlet_at_least
from fedscale_ext.data.importing.grouping import grouped
from fedscale_ext.data.importing.options import ImportOptions
from fedscale_ext.data.importing.partition import KINDS, Partition, follow
from fedscale_ext.data.importing.shift import Shift
from fedscale_ext.data.importing.sizes import RULES, sizes
from fedscale_ext.data.layout.split import group, held_out_count, held_out_mask, with_held_out

FIXED = settings(deadline=None, derandomize=True, max_examples=60)


@FIXED
@given(
    st.sampled_from(KINDS), st.integers(1, 40), st.floats(1e-3, 1e3), st.integers(1, 3), st.integers(0, 200),
    st.integers(1, 12), st.integers(0, 5),
)  # fmt: skip
def test_every_sample_has_one_client_and_nobody_is_empty(kind, clients, alpha, shards, extra, classes, seed):
    labels = np.random.default_rng(extra).integers(0, classes, clients * shards + extra)
    if kind == "classes":  # each class must have a sample for each of its clients
        labels = np.arange(len(labels)) % classes
        if clients * shards < classes or shards > classes or len(labels) // classes * classes < clients * shards:
            return
    partition = Partition(kind, clients, alpha, shards, shards)
    client = partition.assign(labels, seed)
    assert client.shape == labels.shape and client.min() >= 0
    sizes = np.bincount(client, minlength=clients)
    assert len(sizes) == clients and sizes.min() >= 1
    assert np.array_equal(client, partition.assign(labels, seed))


LABELS = np.repeat(np.arange(10), 1000)


def labels_per_client(partition: Partition) -> np.ndarray:
    client = partition.assign(LABELS, 1)
    return np.array([len(np.unique(LABELS[client == c])) for c in range(partition.clients)])


def test_shards_limit_the_labels_and_sizes_are_equal():
    partition = Partition("shard", 100, shards_per_client=2)
    assert labels_per_client(partition).max() == 2
    assert set(np.bincount(partition.assign(LABELS, 1))) == {100}


def test_iid_sizes_differ_by_at_most_one():
    sizes = np.bincount(Partition("iid", 7).assign(LABELS, 1))
    assert sizes.max() - sizes.min() == 1
    assert labels_per_client(Partition("iid", 20)).min() == 10


def test_alpha_sets_how_unequal_clients_are():
    few, some, all_ = (labels_per_client(Partition("dirichlet", 50, alpha)).mean() for alpha in (0.05, 0.5, 100.0))
    assert few < 4 < some < 9.5 < all_
    shares = np.bincount(Partition("dirichlet", 50, 1e4).assign(LABELS, 1))
    assert abs(shares - 200).max() < 15


def test_seeds_differ():
    for kind in KINDS:
        partition = Partition(kind, 10)
        assert not np.array_equal(partition.assign(LABELS, 1), partition.assign(LABELS, 2))


# ---- Dirichlet with a minimum ----


@FIXED
@given(st.integers(1, 30), st.floats(1e-3, 1e3), st.integers(2, 20), st.integers(0, 300), st.integers(1, 12))
def test_everyone_has_the_minimum(clients, alpha, least, extra, classes):
    labels = np.random.default_rng(extra).integers(0, classes, clients * least + extra)
    client = Partition("dirichlet", clients, alpha, min_samples=least).assign(labels, extra)
    assert client.shape == labels.shape and client.min() >= 0
    sizes = np.bincount(client, minlength=clients)
    assert len(sizes) == clients and sizes.min() >= least


STL10 = np.repeat(np.arange(10), 1300)
UNIMIB = np.repeat(np.arange(8), [529, 511, 526, 661, 484, 434, 513, 534])


@pytest.mark.parametrize(
    ("labels", "clients", "alpha", "least"),
    [(STL10, 50, 0.1, 50), (UNIMIB, 30, 0.5, 24), (UNIMIB, 30, 0.1, 13), (UNIMIB, 30, 1e4, 24)],
)  # fmt: skip
def test_the_minima_of_hypemefed(labels, clients, alpha, least):
    """Of STL-10 with alpha 0.1 no draw in a thousand is enough: there, samples move."""
    partition = Partition("dirichlet", clients, alpha, min_samples=least)
    client = partition.assign(labels, 1)
    assert np.bincount(client, minlength=clients).min() >= least
    assert np.array_equal(client, partition.assign(labels, 1))
    assert not np.array_equal(client, partition.assign(labels, 2))
    kinds = np.mean([len(np.unique(labels[client == c])) for c in range(clients)])
    assert kinds < 6.5 if alpha < 1 else kinds == 8  # as unequal as alpha says


def test_moved_samples_are_of_a_label_that_the_client_has():
    client = dirichlet_at_least(STL10, 50, 0.02, 1, 100)
    kinds = [len(np.unique(STL10[client == c])) for c in range(50)]
    assert np.bincount(client).min() >= 100 and np.median(kinds) <= 3


def test_a_minimum_beyond_the_samples_is_refused():
    with pytest.raises(UserError, match="99 samples do not give 10 clients 10 each"):
        Partition("dirichlet", 10, min_samples=10).assign(np.zeros(99, np.int64), 1)


def test_what_was_written_without_a_minimum_is_still_the_same():
    assert "min_samples" not in Partition("dirichlet", 3).settings()
    assert Partition("dirichlet", 3, min_samples=5).settings()["min_samples"] == 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: Partition("dirichlet", 3, min_samples=0),
        lambda: Partition("iid", 3, min_samples=2),
        lambda: Partition("random", 3),
        lambda: Partition("iid", 0),
        lambda: Partition("dirichlet", 3, alpha=0.0),
        lambda: Partition("dirichlet", 3, alpha=float("nan")),
        lambda: Partition("shard", 3, shards_per_client=0),
        lambda: Partition("iid", 20001).assign(LABELS, 1),
    ],
)
def test_impossible_partitions_are_refused(make):
    with pytest.raises(UserError):
        make()


@FIXED
@given(st.integers(0, 500), st.floats(0, 0.99))
def test_a_training_sample_is_always_left(samples, fraction):
    count = held_out_count(samples, fraction)
    assert count == 0 if samples < 2 or fraction == 0 else 1 <= count < samples
    assert held_out_count(62, 0.2) == 12


def test_a_clients_split_does_not_depend_on_others():
    client = np.array([0] * 20 + [1] * 30)
    alone, both = held_out_mask(client[:20], 1, 0.2, 3), held_out_mask(client, 2, 0.2, 3)
    assert np.array_equal(alone, both[:20]) and both.sum() == 10


def test_group_keeps_order_and_leaves_out_nobodys_rows():
    rows, offsets = group(np.array([1, -1, 0, 1, 3]), 4)
    assert rows.tolist() == [2, 0, 3, 4] and offsets.tolist() == [0, 1, 3, 3, 4]


@FIXED
@given(st.integers(1, 60), st.integers(1, 10), st.integers(1, 10), st.integers(0, 5))
def test_each_client_has_exactly_so_many_classes(clients, per_client, classes, seed):
    if per_client > classes or clients * per_client < classes:
        return
    labels = np.arange(classes * 70) % classes
    client = Partition("classes", clients, classes_per_client=per_client).assign(labels, seed)
    pairs = np.unique(np.stack([client, labels]), axis=1)
    assert np.bincount(pairs[0], minlength=clients).tolist() == [per_client] * clients
    holders = np.bincount(pairs[1])
    assert holders.max() - holders.min() <= 1
    for label in range(classes):  # a class is shared evenly
        counts = np.bincount(client[labels == label], minlength=clients)
        assert counts[counts > 0].max() - counts[counts > 0].min() <= 1


def test_heterofls_split_of_cifar10():
    client = Partition("classes", 100).assign(np.arange(50_000) % 10, 1)
    assert set(np.bincount(client)) == {500}
    pairs = {tuple(np.unique((np.arange(50_000) % 10)[client == c])) for c in range(100)}
    assert len(pairs) > 25  # of 45: who has which classes is drawn


@pytest.mark.parametrize(
    ("clients", "per_client", "labels", "said"),
    [
        (5, 3, [0, 1] * 20, "cannot have 3 of 2 classes"),
        (2, 1, [0, 1, 2] * 20, "cannot share 3 classes"),
        (30, 1, [0, *[1] * 50], "class 0 has 1 samples for 15 clients"),
    ],
)
def test_classes_that_cannot_be_shared_are_refused(clients, per_client, labels, said):
    with pytest.raises(UserError, match=said):
        Partition("classes", clients, classes_per_client=per_client).assign(np.array(labels), 1)


@FIXED
@given(st.integers(1, 20), st.integers(0, 200), st.integers(1, 6), st.integers(0, 3))
def test_tests_are_shared_out_as_the_training_samples(clients, tests, classes, seed):
    rng = np.random.default_rng(seed)
    train_labels, labels = rng.integers(0, classes, 300), rng.integers(0, classes + 1, tests)
    train_client = Partition("dirichlet", clients, 0.3).assign(train_labels, seed)
    client = follow(train_client, train_labels, labels, clients, seed)
    assert len(client) == tests and (tests == 0 or (client.min() >= 0 and client.max() < clients))
    for label in range(classes):
        share = np.bincount(train_client[train_labels == label], minlength=clients)
        counts = np.bincount(client[labels == label], minlength=clients)
        assert np.abs(counts - share / max(1, share.sum()) * counts.sum()).max() < 1.0 + 1e-9
    evenly = np.bincount(client[labels == classes], minlength=clients)  # which nobody trains on
    assert evenly.max() - evenly.min() <= 1


@FIXED
@given(st.integers(2, 300), st.floats(0.01, 0.9), st.integers(1, 8), st.integers(0, 5))
def test_held_out_samples_have_the_clients_own_mix(samples, fraction, classes, seed):
    labels = np.random.default_rng(seed).integers(0, classes, samples)
    mask = held_out_mask(np.zeros(samples, np.int64), 1, fraction, seed, labels)
    assert mask.sum() == held_out_count(samples, fraction)
    expected = np.bincount(labels, minlength=classes) * mask.sum() / samples
    assert np.abs(np.bincount(labels[mask], minlength=classes) - expected).max() < 1 + 1e-9


# ---- Dirichlet with an exact number ----


@FIXED
@given(st.integers(1, 30), st.floats(1e-3, 1e3), st.integers(1, 20), st.integers(0, 300), st.integers(1, 12))
def test_everyone_has_the_exact_number(clients, alpha, each, extra, classes):
    labels = np.random.default_rng(extra).integers(0, classes, clients * each + extra)
    partition = Partition("dirichlet", clients, alpha, samples_per_client=each)
    client = partition.assign(labels, extra)
    assert np.count_nonzero(client < 0) == extra and client.min() >= -1
    assert np.bincount(client[client >= 0], minlength=clients).tolist() == [each] * clients
    assert np.array_equal(client, partition.assign(labels, extra))


@FIXED
@given(st.integers(1, 200), st.floats(0.0, 0.9))
def test_what_is_held_out_comes_on_top(train, fraction):
    samples = with_held_out(train, fraction)
    assert samples - held_out_count(samples, fraction) == train


def test_small_alpha_means_few_labels_and_a_large_one_all():
    labels = np.arange(50_000) % 10
    for alpha, low, high in ((0.1, 1.5, 5.0), (1e3, 9.9, 10.0)):  # Moss's 300 devices of 100 samples
        client = Partition("dirichlet", 300, alpha, samples_per_client=100).assign(labels, 1, 0.2)
        assert np.bincount(client[client >= 0]).tolist() == [125] * 300
        kinds = np.mean([len(np.unique(labels[client == c])) for c in range(300)])
        assert low <= kinds <= high
    assert not np.array_equal(client, Partition("dirichlet", 300, alpha, samples_per_client=100).assign(labels, 2, 0.2))


def test_test_samples_follow_where_samples_are_left_over():
    labels = np.repeat(np.arange(4), 100)
    client = Partition("dirichlet", 5, 0.2, samples_per_client=20).assign(labels, 1)
    tests = np.repeat(np.arange(5), 40)  # nobody trains on class 4: dealt evenly
    owners = follow(client, labels, tests, 5, 1)
    for number in range(5):
        trained, served = set(labels[client == number]), set(tests[owners == number].tolist()) - {4}
        assert served <= trained
    assert np.bincount(owners[tests == 4], minlength=5).tolist() == [8] * 5


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Partition("dirichlet", 10, samples_per_client=10).assign(np.zeros(99, np.int64), 1),
            "99 samples do not",
        ),
        (lambda: Partition("dirichlet", 3, samples_per_client=-1), "must be at least 1, not -1"),
        (lambda: Partition("iid", 3, samples_per_client=2), "is for Dirichlet partitions, not for iid"),
        (lambda: Partition("dirichlet", 3, samples_per_client=2, min_samples=2), "leave one of them out"),
    ],
)
def test_exact_numbers_that_cannot_be_are_refused(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()


# ---- sizes ----


@FIXED
@given(st.sampled_from(sorted(RULES)), st.integers(1, 50), st.integers(0, 5000))
def test_sizes_follow_the_rule(rule, clients, extra):
    counts = sizes(clients + extra, clients, rule)
    assert counts.sum() == clients + extra and counts.min() >= 1 and (np.diff(counts) >= 0).all()
    numbers = np.arange(1, clients + 1)
    shares = {"linear": numbers / 1.0, "square": numbers**2.0, "exponential": np.exp(numbers - 50.0)}[rule]
    assert np.abs(counts - 1 - extra * shares / shares.sum()).max() <= 1
    client = Partition(rule, clients).assign(np.zeros(clients + extra, np.int64), 3)
    assert np.bincount(client, minlength=clients).tolist() == counts.tolist()


def test_rising_sizes_keep_the_mix_of_labels_and_survive_many_clients():
    client = Partition("linear", 10).assign(LABELS, 1)
    assert np.abs(np.bincount(LABELS[client == 9]) - 182).max() < 45
    assert sizes(2000, 1000, "exponential").tolist() == [1] * 990 + sizes(1010, 10, "exponential").tolist()


# ---- groups of clients ----


@FIXED
@given(st.integers(1, 20), st.integers(0, 40), st.integers(0, 5))
def test_groups_have_whole_clients_as_many_as_each_other(clients, extra, seed):
    num_owners = clients + extra
    owner = np.random.default_rng(seed).integers(0, num_owners, 200)
    client = grouped(owner, num_owners, clients, seed)
    of_own = grouped(np.arange(num_owners), num_owners, clients, seed)
    assert np.array_equal(client, of_own[owner])
    counts = np.bincount(of_own, minlength=clients)
    assert counts.min() >= 1 and counts.max() - counts.min() <= 1


def test_groups_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="3 clients of its own, which cannot be grouped into 4"):
        grouped(np.arange(3), 3, 4, 1)
    with pytest.raises(UserError, match="leave one of them out"):
        ImportOptions(partition=Partition("grouped", 2), shift=Shift("domains")).check(None)
