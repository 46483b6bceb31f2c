"""pliant in the place of PyTorch's own compiler: programs and libraries that call `torch.compile` get pliant regions."""
