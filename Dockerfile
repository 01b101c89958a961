# An image with fedscale_ext, for `fedscale driver render --kubernetes` (docs/cluster.md#kubernetes).
#
# For NVIDIA GPUs: docker build -t fedscale_ext .
# For CPUs:        docker build -t fedscale_ext --build-arg TORCH_INDEX=URL .
#
# URL is the index of PyTorch's CPU builds, as PyTorch's own installation page has it. Without it, torch brings NVIDIA's
# libraries along, so that the base needs none and the node only its driver. BASE is any image with Python 3.11 to 3.13.
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG TORCH_INDEX=
WORKDIR /opt/fedscale
COPY constraints.txt setup.py pyproject.toml README.md MANIFEST.in ./
COPY fedscale_ext fedscale_ext
COPY benchmark_configs benchmark_configs
RUN python -m pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} torch torchvision \
    && python -m pip install --no-cache-dir -c constraints.txt . \
    && fedscale --version
WORKDIR /fedscale
