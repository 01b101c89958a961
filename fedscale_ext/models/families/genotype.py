"""Genotypes of NAS-Bench-201 cells (Dong & Yang, ICLR 2020): which operation is on which edge.

A cell has four nodes; node 0 is its input, node 3 its output, and every node is the sum of the
operations on its incoming edges. The arch string ``|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`` lists
the edges into nodes 1, 2 and 3, each operation with the node that it comes from.
"""

import difflib

from fedscale_ext.core.errors import UserError

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
KERNEL = {"nor_conv_1x1": 1, "nor_conv_3x3": 3}
WIDTH_KEEPING = ("skip_connect", "avg_pool_3x3")  # without weights: as many channels out as in

Genotype = dict[tuple[int, int], str]


def parse(arch: str) -> Genotype:
    """Operation per edge of an arch string; UserError says what is wrong with a malformed one."""
    groups = str(arch).split("+")
    if len(groups) != 3:
        raise UserError(
            f"genotype {arch!r} has {len(groups)} nodes; NAS-Bench-201 has 3: |op~0|+|op~0|op~1|+|op~0|op~1|op~2|"
        )
    genotype: Genotype = {}
    for node, group in enumerate(groups, start=1):
        edges = group[1:-1].split("|") if len(group) > 1 and group[0] == group[-1] == "|" else []
        if len(edges) != node:
            raise UserError(f"genotype {arch!r}: node {node} needs {node} edges written |op~0|…|, got {group!r}")
        for source, edge in enumerate(edges):
            operation, _, origin = edge.partition("~")
            if operation not in OPERATIONS:
                near = difflib.get_close_matches(operation, OPERATIONS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(OPERATIONS)}"
                raise UserError(f"genotype {arch!r}: unknown operation {operation!r}; {hint}")
            if origin != str(source):
                raise UserError(f"genotype {arch!r}: edge {edge!r} into node {node} should come from node {source}")
            genotype[source, node] = operation
    return genotype


def arch_string(genotype: Genotype) -> str:
    """The arch string of a genotype; inverse of :func:`parse`."""
    nodes = [[f"{genotype[i, node]}~{i}" for i in range(node)] for node in (1, 2, 3)]
    return "+".join("|" + "|".join(edges) + "|" for edges in nodes)


RESIDUAL = parse("|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|nor_conv_1x1~1|none~2|")


def keeps_width(genotype: Genotype) -> bool:
    """Return whether the cell's input reaches a node through an edge without weights."""
    return any(genotype[0, node] in WIDTH_KEEPING for node in (1, 2, 3))


def identity_genotype(genotype: Genotype) -> Genotype:
    """The genotype nearest to ``genotype`` that can be an exact identity and still learn.

    The input is skipped to the output, and the other edges into the output are convolutions (or
    none), so that zero BatchNorm scales silence them. Where no convolution into the output would
    be reached from the input, the plain residual cell takes its place.
    """
    result = {**genotype, (0, 3): "skip_connect"}
    for edge in ((1, 3), (2, 3)):
        if result[edge] in WIDTH_KEEPING:
            result[edge] = "nor_conv_1x1"
    first = result[0, 1] != "none"
    second = result[0, 2] != "none" or (first and result[1, 2] != "none")
    learns = (first and result[1, 3] in KERNEL) or (second and result[2, 3] in KERNEL)
    return result if learns else dict(RESIDUAL)
