/* Top-k, then top-p, then one draw, for each row of logits.
 *
 * The k best are kept in a heap whose root is the smallest of them; blocks of logits that hold nothing above the root are
 * passed over with one vector comparison a step, which is nearly all of them.
 */
#include <math.h>
#include <omp.h>
#include <stdint.h>

#define KMAX 1024
#define BLOCK 64 /* logits looked at together */

typedef struct {
    float value;
    int token;
} entry;

/* Ties go to the smaller token, as a stable sort has it. */
static inline int below(entry a, entry b) { return a.value < b.value || (a.value == b.value && a.token > b.token); }

static void sift_down(entry *heap, long size, long at) {
    for (long child = 2 * at + 1; child < size; child = 2 * at + 1) {
        if (child + 1 < size && below(heap[child + 1], heap[child])) child++;
        if (!below(heap[child], heap[at])) return;
        entry held = heap[at];
        heap[at] = heap[child], heap[child] = held;
        at = child;
    }
}

static int any_above(const float *x, float root) {
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int j = 0; j < BLOCK; j++) found |= x[j] > root;
    return found;
}

/* The k largest in descending order. */
static void select_largest(const float *x, long n, long k, entry *heap) {
    for (long j = 0; j < k; j++) heap[j] = (entry){x[j], (int)j};
    for (long at = k / 2; at >= 0; at--) sift_down(heap, k, at);
    for (long j = k; j < n;) {
        if (j + BLOCK <= n && !any_above(x + j, heap[0].value)) {
            j += BLOCK;
            continue;
        }
        long end = j + BLOCK < n ? j + BLOCK : n;
        for (; j < end; j++)
            if (x[j] > heap[0].value) heap[0] = (entry){x[j], (int)j}, sift_down(heap, k, 0);
    }
    for (long size = k - 1; size > 0; size--) {
        entry smallest = heap[0];
        heap[0] = heap[size], heap[size] = smallest;
        sift_down(heap, size, 0);
    }
}

static int64_t sample_row(const float *x, long n, long k, float p, float draw) {
    entry best[KMAX];
    float reached[KMAX], total = 0.0f, sum = 0.0f;
    select_largest(x, n, k, best);
    for (long j = 0; j < k; j++) total += reached[j] = expf(best[j].value - best[0].value);
    long kept = 0;
    do {
        sum += reached[kept] / total;
        reached[kept++] = sum;
    } while (kept < k && sum < p);
    long chosen = 0;
    while (chosen < kept - 1 && reached[chosen] <= draw * sum) chosen++;
    return best[chosen].token;
}

void sample_f32(const float *logits, const float *draw, int64_t *out, long rows, long vocab, long k, float p,
                int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) out[r] = sample_row(logits + r * vocab, vocab, k, p, draw[r]);
}
