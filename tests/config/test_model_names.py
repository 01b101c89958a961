"""What is told of models without torch is what the models themselves tell."""

import pytest

from fedscale_ext.config.model_names import LEAST_SIDE, READS_SYMBOLS, surely_takes
from fedscale_ext.core.errors import UserError
from fedscale_ext.models import registry


def takes(name: str, shape: tuple[int, int, int], built: bool = False) -> bool:
    try:
        spec = registry.named_spec(name, shape, 10)
        if built or spec.family == "cnn":  # the one family that tells so only when it is built; large ones take long
            registry.skeleton(spec)
    except UserError:
        return False
    return True


def test_every_model_of_the_package_is_named():
    names = {name for family in registry._families().values() for name in family.NAMED
             if getattr(family, "__name__", "").startswith("fedscale_ext.")}  # fmt: skip
    assert set(LEAST_SIDE) == names


PATHS = {name: name.removesuffix(end) for name in LEAST_SIDE for end in ("_smallest", "_largest") if name.endswith(end)}


def test_a_path_of_a_supernet_takes_what_that_takes():
    assert PATHS and all(LEAST_SIDE[name] == LEAST_SIDE[supernet] for name, supernet in PATHS.items())


@pytest.mark.parametrize("name", sorted(set(LEAST_SIDE) - set(PATHS)))  # finding the dearest path takes long
def test_the_least_side_is_that_of_the_model(name: str):
    side = LEAST_SIDE[name]
    for shape in ((3, side, 2 * side + 1), (3, 4 * side + 3, side), (9, 1, side), (1, 1, 80)):
        assert takes(name, shape) or not surely_takes(name, shape, None), shape
    assert surely_takes(name, (3, side, side), None) and takes(name, (3, side, side), built=True)
    if side > 1:
        assert not takes(name, (3, side - 1, side - 1)) and not surely_takes(name, (3, side - 1, side - 1), None)


def test_symbols_are_read_by_the_models_that_say_so():
    assert {name for name in LEAST_SIDE if name.startswith("rnn")} == READS_SYMBOLS
    for name in set(LEAST_SIDE) - set(PATHS):
        side = LEAST_SIDE[name]
        spec = registry.named_spec(name, (3, side, side), 10)
        reads = registry.reads_symbols(spec)
        assert reads is (name in READS_SYMBOLS)
        assert surely_takes(name, (3, side, side), reads) and not surely_takes(name, (3, side, side), not reads)
        assert surely_takes(name, None, reads)


def test_a_name_alone():
    assert surely_takes("resnet18", None, None) and not surely_takes("resnt18", None, None)
    assert surely_takes("multi_exit_vgg_small", (9, 1, 128), None) and not surely_takes("resnet18", (9, 1, 128), None)
