/* Router of a mixture of experts: the topk best logits of each token and their softmax weights.
 *
 * out[0, t, topk] holds the experts (as floats, exact), out[1, t, topk] the weights.
 */
#include "moe_f32.c"

void moe_gate_f32(const float *logits, float *out, long t, long e, long topk, int threads) {
    sizes z = {t, e, topk, 0, 0, t * topk};
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < t; r++) {
        int experts[KMAX];
        choose(logits + r * e, z, experts, out + z.rows + r * topk);
        for (long j = 0; j < topk; j++) out[r * topk + j] = (float)experts[j];
    }
}
