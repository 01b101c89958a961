"""One job on several machines: hosts by ssh, a Ray cluster, Slurm allocations, or Kubernetes manifests."""
