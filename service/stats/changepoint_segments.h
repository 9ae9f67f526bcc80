/* Steps 3 and 4 of _changepoint.c: prefix sums, candidates, partition, and what the segments leave. */
#pragma once
#include "changepoint_noise.h"

/* ---- prefix sums: any segment in O(1) --------------------------------------------------------------------- */

static void prefix(work *k, double slope) {
    k->sw[0] = k->swy[0] = k->swyy[0] = 0;
    for (int i = 0; i < k->n; i++) {
        double w = k->w[i], y = k->clean[i] - slope * i - k->clean[0];
        k->y[i] = y + k->clean[0];
        k->sw[i + 1] = k->sw[i] + w;
        k->swy[i + 1] = k->swy[i] + w * y;
        k->swyy[i + 1] = k->swyy[i] + w * y * y;
    }
}

static double cost(const work *k, int a, int b) {
    double s = k->swy[b] - k->swy[a];
    return greater(0, k->swyy[b] - k->swyy[a] - s * s / (k->sw[b] - k->sw[a]));
}

static double level(const work *k, int a, int b) {
    return k->clean[0] + (k->swy[b] - k->swy[a]) / (k->sw[b] - k->sw[a]);
}

/* Best place to split [a, b) and its gain in squared error, which is a squared z. With w and s the sums of the left
 * part and m the mean of the whole, the gain is (s - w m)^2 W / (w (W - w)); divisions stand apart to vectorise. */
static int best_split(const work *k, int a, int b, double *top) {
    int first = a + k->set->min_segment, count = b - k->set->min_segment - first + 1, at = -1;
    double total = k->sw[b] - k->sw[a], mean = (k->swy[b] - k->swy[a]) / total, w0 = k->sw[a], s0 = k->swy[a];
    const double *sw = k->sw + first, *swy = k->swy + first;
    double *g = k->gains, best = 0;
    for (int i = 0; i < count; i++) {
        double w = sw[i] - w0, d = swy[i] - s0 - w * mean;
        g[i] = d * d / (w * (total - w));
    }
    for (int i = 0; i < count; i++)
        if (g[i] > best) { best = g[i]; at = first + i; }
    *top = best * total;
    return at;
}

/* ---- 3 and 4: candidates and partition -------------------------------------------------------------------- */

/* Intervals of shrinking length, half overlapping; the last of each length ends at the newest point. */
static void candidates(work *k) {
    int n = k->n, m = k->set->min_segment, count = 0;
    double need = k->set->candidate_z * k->set->candidate_z, gain;
    memset(k->mark, 0, n);
    for (double length = n;; length *= 0.5) {
        int size = max_i((int)length, 2 * m), last = 0;
        for (int a = 0; !last; a += size / 2) {
            if (a + size >= n) { a = n - size; last = 1; }
            int t = best_split(k, a, a + size, &gain);
            if (t > 0 && gain >= need) k->mark[t] = 1;
        }
        if (size == 2 * m) break;
    }
    k->cand[0] = 0;
    for (int t = 1; t < n; t++) if (k->mark[t]) k->cand[++count] = t;
    k->cand[count + 1] = n;
    k->edges = count + 2;
}

/* f(j) = min over i of f(i) + cost(i, j) + penalty: exact over the candidates (Jackson et al. 2005). */
static int partition(const work *k, double penalty, int *cuts) {
    int *edge = k->cand, last = k->edges - 1, from[k->edges], found = 0;
    double f[k->edges];
    f[0] = -penalty;
    for (int j = 1; j <= last; j++) {
        f[j] = INFINITY;
        from[j] = 0;
        for (int i = 0; i < j && edge[j] - edge[i] >= k->set->min_segment; i++) {
            double v = f[i] + cost(k, edge[i], edge[j]) + penalty;
            if (v < f[j]) { f[j] = v; from[j] = i; }
        }
    }
    for (int j = from[last]; j > 0; j = from[j]) found++;
    for (int j = from[last], i = found; j > 0; j = from[j]) cuts[--i] = edge[j];
    return found;
}

/* ---- what the segments leave: correlation and slope ------------------------------------------------------- */

/* Pooled over the segments: squared error, slope with its z, and lag-one correlation from the variogram at lags 1 to 3
 * (for AR(1) g(k) = s^2 (1 - rho^k), so (g2 + g3) / g1 = 2 + 2 rho + rho^2), which, unlike the correlation of
 * residuals, does not shrink when too many segments are fitted. Half a standard error is added: the safe side. */
static void look_at_residuals(const work *k, model *m) {
    double error = 0, sxy = 0, sxx = 0, g[4] = {0};
    int pairs[4] = {0};
    for (int s = 0; s <= m->count; s++) {
        int a = s ? m->cuts[s - 1] : 0, b = s < m->count ? m->cuts[s] : k->n;
        double mid = 0.5 * (a + b - 1), at = level(k, a, b);
        error += cost(k, a, b);
        for (int i = a; i < b; i++) {
            double wx = k->w[i] * (i - mid);
            sxy += wx * (k->y[i] - at);
            sxx += wx * (i - mid);
        }
    }
    m->error = error;
    m->more = sxx > 0 ? sxy / sxx : 0;
    m->more_z = sxx > 0 ? sxy / sqrt(sxx) : 0;
    m->unit = greater(0.5, error / max_i(1, k->n - m->count - 1));
    double cap = 18 * m->unit;
    for (int s = 0; s <= m->count; s++) {
        int a = s ? m->cuts[s - 1] : 0, b = s < m->count ? m->cuts[s] : k->n;
        for (int lag = 1; lag <= 3; lag++) {
            for (int i = a + lag; i < b; i++) {
                double d = k->y[i] - k->y[i - lag];
                g[lag] += lesser(d * d * k->w[i], cap);
            }
            pairs[lag] += max_i(0, b - a - lag);
        }
    }
    double ratio = pairs[3] && g[1] > 0 ? (g[2] / pairs[2] + g[3] / pairs[3]) / (g[1] / pairs[1]) : 2;
    m->rho = lesser(0.9, greater(0, sqrt(greater(0, ratio - 1)) - 1 + 0.5 / sqrt(k->n)));
}

/* variance of the mean of h points with AR(1) correlation, over that of independent points */
static double inflation_of(double rho, double h) {
    if (rho <= 0) return 1;
    return (1 + rho) / (1 - rho) - 2 * rho * (1 - pow(rho, h)) / (h * (1 - rho) * (1 - rho));
}
