"""Parsing of NAS-Bench-201 arch strings."""

import itertools

import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.models.families.genotype import EDGES, KERNEL, OPERATIONS, arch_string, identity_genotype, parse


def test_every_operation_on_every_edge_survives_parsing():
    for shift in range(5):
        genotype = {edge: OPERATIONS[(index + shift) % 5] for index, edge in enumerate(EDGES)}
        assert parse(arch_string(genotype)) == genotype


def test_known_string():
    genotype = parse("|nor_conv_3x3~0|+|none~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_1x1~1|none~2|")
    assert genotype[0, 1] == "nor_conv_3x3"
    assert genotype[1, 2] == "avg_pool_3x3"
    assert genotype[0, 3] == "skip_connect"
    assert genotype[1, 3] == "nor_conv_1x1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1 nodes"),
        ("|none~0|+|none~0|none~1|", "2 nodes"),
        ("none~0+|none~0|none~1|+|none~0|none~1|none~2|", "node 1 needs 1 edges"),
        ("|none~0|+|none~0|+|none~0|none~1|none~2|", "node 2 needs 2 edges"),
        ("|nor_conv_3x4~0|+|none~0|none~1|+|none~0|none~1|none~2|", "did you mean 'nor_conv_3x3'"),
        ("|zzz~0|+|none~0|none~1|+|none~0|none~1|none~2|", "use one of none"),
        ("|none~0|+|none~1|none~0|+|none~0|none~1|none~2|", "should come from node 0"),
        ("|none|+|none~0|none~1|+|none~0|none~1|none~2|", "should come from node 0"),
    ],
)
def test_bad_strings_name_what_is_wrong(text, message):
    with pytest.raises(UserError, match=message):
        parse(text)


def test_identity_genotypes_skip_their_input_and_can_always_learn():
    for operations in itertools.product(OPERATIONS, repeat=6):
        genotype = dict(zip(EDGES, operations, strict=True))
        identity = identity_genotype(genotype)
        assert identity[0, 3] == "skip_connect"
        assert all(identity[edge] in KERNEL or identity[edge] == "none" for edge in ((1, 3), (2, 3)))
        reached = {1: identity[0, 1] != "none"}
        reached[2] = identity[0, 2] != "none" or (reached[1] and identity[1, 2] != "none")
        assert any(identity[node, 3] in KERNEL and reached[node] for node in (1, 2))
