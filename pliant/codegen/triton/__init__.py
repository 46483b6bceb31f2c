"""CUDA devices as a target: kernels are printed as Triton, with every size and stride an argument (docs/gpu.md)."""
