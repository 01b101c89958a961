"""The hypernetworks' losses with their gradients (Shin et al., SenSys 2024, sections 4.3 and 4.4).

"Trained to predict these compressed singular vectors" says the text; the loss that leaves the vectors' signs free is
the mean squared error of the weight that they make together, as in the public code. With P [k, m] and Q [k, n] as rows
and the target T [m, n],

    |P^T Q - T|^2 = <P P^T, Q Q^T> - 2 <P, Q T^T> + |T|^2
    d/dP = 2 (Q Q^T P - Q T^T),  d/dQ = 2 (P P^T Q - P T)

so that the product is never formed: a third less work, and nothing of the weight's size is written.
"""

from dataclasses import dataclass

import torch

from fedscale_ext.methods.hypemefed.factorisation import Factors


@dataclass(frozen=True)
class Target:
    """A weight as the matrix T [m, n] and its squared norm (float64, 0-d)."""

    matrix: torch.Tensor
    square: torch.Tensor

    @staticmethod
    def of(matrix: torch.Tensor) -> "Target":
        """Create a target from a matrix, with its squared norm."""
        return Target(matrix, torch.linalg.vector_norm(matrix, dtype=torch.float64) ** 2)


def weight_loss(p: torch.Tensor, q: torch.Tensor, target: Target) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean squared error of P^T Q (float64, 0-d), and its gradients by P [k, m] and Q [k, n]."""
    pp, qq = p @ p.T, q @ q.T
    towards_p, towards_q = q @ target.matrix.T, p @ target.matrix
    error = torch.sum(pp * qq, dtype=torch.float64) - 2 * torch.sum(p * towards_p, dtype=torch.float64) + target.square
    scale = 2 / target.matrix.numel()
    by_p = torch.addmm(towards_p, qq, p, beta=-scale, alpha=scale)
    by_q = torch.addmm(towards_q, pp, q, beta=-scale, alpha=scale)
    return error / target.matrix.numel(), by_p, by_q


def factor_loss(p: torch.Tensor, q: torch.Tensor, target: Factors) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean squared error of P [k, m] and Q [k, n] against the next layer's own components [m, r], [r, n].

    The text taken literally. Components count that both have; the others have no gradient.
    """
    common = min(len(p), len(target[1]))
    by_p, by_q = torch.zeros_like(p), torch.zeros_like(q)
    loss_p, by_p[:common] = row_loss(p[:common], target[0].T[:common])
    loss_q, by_q[:common] = row_loss(q[:common], target[1][:common])
    return loss_p + loss_q, by_p, by_q


def row_loss(rows: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean squared error of rows [n, m] (float64, 0-d), and its gradient."""
    difference = rows - target
    loss = torch.sum(difference * difference, dtype=torch.float64) / target.numel()
    return loss, difference.mul_(2 / target.numel())
