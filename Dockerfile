# An image with fedscale_ext, for `fedscale driver render --kubernetes` (docs/cluster.md#kubernetes).
#
# For CPUs:        docker build -t fedscale_ext .
# For NVIDIA GPUs: docker build -t fedscale_ext --build-arg TORCH=default .
#
# BASE is any image with Python 3.11 to 3.13. TORCH says which build of torch is installed: `cpu`, or `default`, which brings
# NVIDIA's libraries along, so that the base needs none and the node only its driver; `base` keeps what the base has, whose
# versions must then be those of constraints.txt on all machines of a job.
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG TORCH=cpu
WORKDIR /opt/fedscale
COPY constraints.txt setup.py pyproject.toml README.md MANIFEST.in ./
COPY fedscale_ext fedscale_ext
COPY benchmark_configs benchmark_configs
RUN case "${TORCH}" in \
      cpu) python -m pip install --no-cache-dir -c constraints.txt \
             --index-url https://download.pytorch.org/whl/cpu torch torchvision ;; \
      default) python -m pip install --no-cache-dir -c constraints.txt torch torchvision ;; \
      base) python -c "import torch, torchvision" ;; \
      *) echo "TORCH is cpu, default or base" >&2; exit 2 ;; \
    esac \
    && python -m pip install --no-cache-dir -c constraints.txt . \
    && fedscale --version
WORKDIR /fedscale
