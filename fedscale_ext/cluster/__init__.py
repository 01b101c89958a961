"""One job on several machines: agents on hosts over ssh, a Slurm allocation, or Kubernetes manifests."""
