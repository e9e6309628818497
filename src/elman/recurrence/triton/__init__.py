"""The CUDA backend: kernels generated from the equations, with the recurrent weights kept on the chip."""
