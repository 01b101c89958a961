"""Learning to guide (FedL2G): how a client's loss on a quiz depends on the vectors that guide its training.

A step along the distance of features to vectors moves the model by the vectors' product with the features' derivative.
So the quiz's gradient with regard to a vector is the features' derivative along the quiz's gradient with regard to the
model: first derivatives of the model suffice, as the paper says.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp
from torch.nn import functional

from fedscale_ext.method import ClientSamples, State
from fedscale_ext.models.layers.final_layer import deepest, input_of
from fedscale_ext.models.layers.plain_attention import PlainAttention


def guiding_gradients(
    model: nn.Module, layer: str | None, study: ClientSamples, quiz: ClientSamples, vectors: Tensor, lr: float
) -> Tensor:
    """Gradients of the quiz's cross-entropy, after a step on study samples, with regard to guiding vectors.

    With h(w) the features of study samples, n of F each, v the vectors and g the gradient of the quiz's loss at w', the
    step is w' = w - lr d/dw [CE + mean |h - v|^2 / F]. So the gradient for class c is 2 lr / (n F) times the sum, over
    study samples of c, of the derivative of h along g.

    Args:
        model: The network, in evaluation.
        layer: Name of its last layer, whose inputs are guided; None: logits are.
        study: Samples of the step.
        quiz: Samples whose loss counts.
        vectors: Guiding vectors, [classes, F].
        lr: Learning rate of the step.

    Returns:
        The gradients, [classes, F].

    """
    parameters = {name: tensor.detach() for name, tensor in model.named_parameters()}

    def run(tensors: State, x: Tensor) -> tuple[Tensor, Tensor]:
        with input_of(model.get_submodule(layer) if layer else model) as last:
            logits = deepest(functional_call(model, tensors, (x,)), 2)
        return logits, deepest(last.features, 2) if layer else logits

    def study_loss(tensors: State) -> Tensor:
        logits, features = run(tensors, study.x)
        distances = (features - vectors[study.y]).square().mean()
        return functional.cross_entropy(logits, study.y) + distances

    def quiz_loss(tensors: State) -> Tensor:
        return functional.cross_entropy(run(tensors, quiz.x)[0], quiz.y)

    with PlainAttention():  # fused kernels have no derivative forward
        steps = grad(study_loss)(parameters)
        moved = {name: tensor - lr * steps[name] for name, tensor in parameters.items()}
        along: Tensor = jvp(lambda tensors: run(tensors, study.x)[1], (parameters,), (grad(quiz_loss)(moved),))[1]
    return torch.zeros_like(vectors).index_add_(0, study.y, along * (2.0 * lr / along.numel()))
