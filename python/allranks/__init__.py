"""Every rank of a distributed PyTorch program on one machine."""
