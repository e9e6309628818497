"""What is measured on a CUDA device, and how."""
