/* silu(gate) * up of rows that hold the gate columns, then the up columns. */
#include "moe_f32.c"

void silu_mul_f32(const float *both, float *out, long rows, long i, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) activate(both + r * 2 * i, 2 * i, 1, i, out + r * i);
}
