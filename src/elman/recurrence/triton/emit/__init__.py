"""Writes the kernels of a cell as Triton: one that goes forward through time, one that goes back.

A program owns a tile of rows and a tile of units, and keeps the weights of its units on the chip. It
computes all gates of its units; so the equations, which are pointwise, need nobody else. What others
need is exchanged through memory, without a barrier: a value says by itself that it has arrived.

Forward, everybody needs the whole state. ``operand`` holds it for every step and begins with all bits
set; a program reads the tile of its rows until no such value is left.

Backward, a cell with one gate does the same with the gradients of its products. With more gates these
are many; there a program multiplies its own with its weights, and has a part of the sum that is the
gradient of everybody's state. The parts go into ``ring``, two rounds deep, with the last bit of a word
as the stamp of the round: a word is a float32, or two bfloat16 where that is what is multiplied. Who
has read all parts of a round has published its own after everybody read the round before; so two
rounds are enough.

Where one program holds all units, nothing is exchanged.

    parts     (B, T, D, inputs, H)    weight  (D, programs, columns, depth), see ``columns``
    operand   (B, T, D, stride)       the state before step t times the mask, as the weights multiply it
    kept      (B, T, D, ·, H)         float32, new states that the backward pass reads
    short     (B, T, D, ·, H)         saved values between -1 and 1, as short as the weights
    long      (B, T, D, ·, H)         other saved values, float32
    initial, final, d_initial, d_final (D, states, B, H), vectors (D, ·, H), noise (B, T, D, ·, H)

D is the number of directions that run at once, the second of them from the end.
"""
