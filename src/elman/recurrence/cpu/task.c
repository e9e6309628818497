// What a call of `kernel.c` is told.
_Static_assert(sizeof(long) == 8 && sizeof(void *) == 8, "the fields of Task are eight bytes wide");
typedef struct {
  // sizes
  long rows, steps, units, features, operand_stride, reverse, threads, split;  // split: threads share units
  long heads, all_units;                // `units` are of one head; all_units, of all heads, is what H is below
  // rows by position (NULL: every row has `steps` steps)
  const long *row, *offset, *length;
  // forward
  REAL *x;                              // (N, INPUTS, H), bias included; training writes OVERLAID saved values over it
  const REAL *given;                    // (N, PRODUCTS, H): products made elsewhere, or NULL
  const REAL *weight;                   // (heads, units, PRODUCTS, units)
  const REAL *mask;                     // (B, H) or NULL: dropout of what the weights multiply
  const REAL *vector[VECTORS + 1];      // (H)
  const REAL *noise[NOISE + 1];         // (N, H)
  const REAL *initial[STATES];          // (B, H)
  REAL *final[STATES];                  // (B, H)
  REAL *sequence[STATES];               // (N, H) or NULL
  REAL *saved;                          // (N, SAVED - OVERLAID, H): the other saved values
  long training;                        // values are saved
  // backward
  const REAL *d_sequence[STATES];       // or NULL
  const REAL *d_final[STATES];          // or NULL
  REAL *d_x;                            // (N, INPUTS, H); with SHARED also the products' gradient
  REAL *d_product;                      // (N, PRODUCTS, H)
  REAL *d_initial[STATES];              // (B, H)
  REAL *d_vector;                       // (heads, threads, VECTORS, width)
  REAL *operand;                        // (N, operand_stride) or NULL: its last H columns get what the weights multiplied
  // one streaming step
  const REAL *input;                    // (B, D)
  const REAL *input_weight;             // (D, INPUTS, H)
  const REAL *bias;                     // (INPUTS, H) or NULL
  // workspace
  REAL *packed;                         // for every head, the weights in the order in which tiles read them
  REAL *states;                         // (heads, STATES, B, width): the running state, or its gradient
  REAL *operands;                       // (heads, 2, B, 1 or PRODUCTS, width): what the weights multiply, old and new
  long arrived, phase;                  // the barrier
} Task;
