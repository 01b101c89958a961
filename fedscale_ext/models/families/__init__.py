"""The model families: each builds networks from a spec and names the axes of their tensors."""
