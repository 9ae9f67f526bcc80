/* Change points in one noisy series of logarithms: the hot path of the detector.
 *
 * The page beside this file (README.md) explains the maths; this is the order of the steps:
 *   1 spikes     pull single wild points towards a running median of seven
 *   2 noise      robust scale, its slow change along the series, serial correlation, the points' own errors
 *   3 candidates best split of each interval of a seeded family (Kovacs et al. 2023), O(n log n)
 *   4 partition  exact least squares over the candidates, a penalty for each change
 *   5 trend      one common slope, kept only when it is cheaper than the steps it replaces
 *   6 test       weakest change out until every one passes a scan-corrected test against its neighbours
 *
 * Plain C11, no dependency but libm, no state between calls; every array is the caller's or freed here.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifndef PRIOR
#define PRIOR 10
#endif
#ifndef RUN_SLACK
#define RUN_SLACK 0.5
#endif
#ifndef RHO_MIX
#define RHO_MIX -1.0
#endif
#ifndef RHO_SE
#define RHO_SE 0.5
#endif
#ifndef UNIT_FLOOR
#define UNIT_FLOOR 0.5
#endif
#ifndef VCAP
#define VCAP 18
#endif
#ifndef MIN_SD
#define MIN_SD 0.75
#endif
#ifndef LOCAL_LINE
#define LOCAL_LINE -1e9
#endif
#ifndef TREND_ROUNDS
#define TREND_ROUNDS 3
#endif
#ifndef TREND_Z
#define TREND_Z 1.0
#endif
#ifndef TREND_PEN
#define TREND_PEN 2.5
#endif

typedef struct {
    double clip_sd;         /* a residual beyond this many robust sd is a spike */
    double sd_floor;        /* smallest sd believed, on the log scale */
    double candidate_z;     /* a split weaker than this is not even a candidate */
    double penalty;         /* cost of a change in the partition, times ln n */
    double gate;            /* z^2 needed at the test: gate + scan * ln(n / points of the shorter side) */
    double scan;
    double min_effect;      /* smallest step kept, on the log scale */
    double line_margin;     /* a step must beat a straight line by this much squared error */
    int min_segment;        /* points */
    int reach;              /* points a side that the test looks at */
} kw_settings;

typedef struct {
    int index, n_before, n_after;
    double before, after;   /* levels, log scale, trend removed */
    double se;              /* standard error of after - before */
    double z;
} kw_change;

typedef struct {
    int start, n;
    double at, se;          /* level over the whole segment and its standard error, log scale */
} kw_level;

typedef struct {
    double noise_sd;        /* of one point, log scale */
    double rho;             /* lag-one serial correlation, >= 0 */
    double slope;           /* per point, log scale; 0 where no trend was kept */
    double slope_z;
    double se_slope;        /* how much of the claimed squared errors is real, 0 .. 2 */
    double mode_gap;        /* distance of two levels that interleave; 0 where there is one */
    double mode_share;      /* of the upper level */
    double mode_separation; /* gap over the sd within the levels */
} kw_facts;

typedef struct {
    int n;
    const kw_settings *set;
    double *y;              /* working copy: spikes pulled in, trend removed */
    double *w;              /* 1 / variance of each point */
    double *sw, *swy, *swyy;/* prefix sums, n + 1 */
    double *tmp, *tmp2;
    double *clean;          /* spikes pulled in, trend kept */
    double rho, dof, unit;
} work;

static int min_i(int a, int b) { return a < b ? a : b; }
static int max_i(int a, int b) { return a > b ? a : b; }

/* ---- order statistics ------------------------------------------------------------------------- */

static double kth(double *a, int n, int k) { /* Hoare's quickselect; reorders a */
    int lo = 0, hi = n - 1;
    while (lo < hi) {
        double pivot = a[(lo + hi) / 2];
        int i = lo, j = hi;
        while (i <= j) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i <= j) { double t = a[i]; a[i++] = a[j]; a[j--] = t; }
        }
        if (k <= j) hi = j; else if (k >= i) lo = i; else break;
    }
    return a[k];
}

static double quantile_of(double *a, int n, double q) {
    return kth(a, n, min_i(n - 1, (int)(q * (n - 1) + 0.5)));
}

static void sort_small(double *a, int n) { /* Shell sort with Ciura's gaps */
    static const int gaps[] = {301, 132, 57, 23, 10, 4, 1};
    for (int g = 0; g < 7; g++)
        for (int i = gaps[g]; i < n; i++) {
            double x = a[i];
            int j = i;
            for (; j >= gaps[g] && a[j - gaps[g]] > x; j -= gaps[g]) a[j] = a[j - gaps[g]];
            a[j] = x;
        }
}

static void order(double *a, double *b) {
    double low = *a < *b ? *a : *b;
    *b = *a < *b ? *b : *a;
    *a = low;
}

/* medians by the middle of a sorting network */
static double median_of_five(const double *y) {
    double a = y[0], b = y[1], c = y[2], d = y[3], e = y[4];
    order(&a, &b); order(&d, &e); order(&a, &d); order(&b, &e);
    order(&b, &c); order(&c, &d); order(&b, &c);
    return c;
}

static double median_of_seven(const double *y) {
    double a = y[0], b = y[1], c = y[2], d = y[3], e = y[4], f = y[5], g = y[6];
    order(&a, &f); order(&a, &d); order(&b, &g); order(&c, &e); order(&a, &b); order(&d, &f); order(&c, &g);
    order(&c, &d); order(&d, &g); order(&e, &f); order(&b, &e); order(&b, &d); order(&d, &e);
    return d;
}

/* ---- step 1 and 2: spikes and noise ------------------------------------------------------------ */

/* sd of one point from lag-one differences: the larger of the MAD and an 85 % quantile, so that a second
 * mode counts as noise while a level change, being one difference, does not. */
static double difference_sd(const double *y, int n, double *tmp) {
    for (int i = 0; i + 1 < n; i++) tmp[i] = fabs(y[i + 1] - y[i]);
    double mid = quantile_of(tmp, n - 1, 0.5) / 0.6745;
    double high = quantile_of(tmp, n - 1, 0.85) / 1.4395;
    return fmax(mid, high) / 1.4142135623730951;
}

/* A spike is far from the median of every window of seven that holds it (of five at the two ends): bursts of up to
 * three are, of up to two at the ends, so that the third point of a new level speaks. It is pulled to one sd from the
 * nearest of those medians. */
static void pull_in_spikes(work *k, const double *raw, double sd) {
    int n = k->n;
    double far = k->set->clip_sd * sd, *med = k->tmp;
    memcpy(k->y, raw, n * sizeof(double));
    if (n < 5) return;
    for (int i = 0; i + 6 < n; i++) med[i] = median_of_seven(raw + i);
    double first = median_of_five(raw), last = median_of_five(raw + n - 5);
    for (int i = 0; i < n; i++) {
        double off = INFINITY;
        for (int j = max_i(0, i - 6); j <= min_i(i, n - 7); j++)
            if (fabs(raw[i] - med[j]) < fabs(off)) off = raw[i] - med[j];
        if (i < 5 && fabs(raw[i] - first) < fabs(off)) off = raw[i] - first;
        if (i >= n - 5 && fabs(raw[i] - last) < fabs(off)) off = raw[i] - last;
        if (fabs(off) > far) k->y[i] = raw[i] - off + copysign(sd, off);
    }
}

static double weigh_points(work *k, const double *se, double sd) {
    int n = k->n;
    double *d = k->tmp, total = 0, cap = 3 * sd;
    for (int i = 0; i + 1 < n; i++) {
        double x = fmin(fabs(k->y[i + 1] - k->y[i]), cap);
        d[i] = x * x / 2;
        total += d[i];
    }
    double mean = total / max_i(1, n - 1), floor2 = k->set->sd_floor * k->set->sd_floor;
    double pool = fmax(sd * sd, floor2);
    /* slow change of the scale: running mean of squared differences, shrunk to the global one */
    int half = 15;
    double run = 0;
    int a = 0, b = 0;
    for (int i = 0; i < n; i++) {
        int from = max_i(0, i - half), to = min_i(n - 1, i + half);
        while (b < to) run += d[b++];
        while (a < from) run -= d[a++];
        double ratio = (fmax(run, 0) + 10 * mean) / ((b - a) + 10) / fmax(mean, 1e-300);
        k->w[i] = pool * ratio;
    }
    double part = 0;
    if (se && n >= 12) {
        /* do points that claim a larger error scatter more? slope of squared residual on squared error
         * between the lower and the upper third of the errors */
        double *s = k->tmp2;
        for (int i = 0; i < n; i++) s[i] = se[i];
        double lo = quantile_of(s, n, 1.0 / 3), hi = quantile_of(s, n, 0.8);
        double vl = 0, vh = 0, sl = 0, sh = 0;
        int nl = 0, nh = 0;
        for (int i = 0; i < n; i++) {
            double m = median_of_five(k->y + min_i(max_i(0, i - 2), n - 5));
            double r = fmin(fabs(k->y[i] - m), 5 * sd);
            if (se[i] <= lo) { vl += r * r; sl += se[i] * se[i]; nl++; }
            else if (se[i] >= hi) { vh += r * r; sh += se[i] * se[i]; nh++; }
        }
        if (nl && nh) {
            vl /= nl; vh /= nh; sl /= nl; sh /= nh;
            if (sh > 1.5 * sl && vh > 1.5 * vl) {
                part = fmin(2, (vh - vl) / (sh - sl));
                double base = fmax(fmax(vl - part * sl, 0.2 * vl), floor2);
                for (int i = 0; i < n; i++) k->w[i] = base + part * se[i] * se[i];
            }
        }
    }
    for (int i = 0; i < n; i++) k->w[i] = 1 / fmax(k->w[i], floor2);
    return part;
}

/* ---- prefix sums -------------------------------------------------------------------------------- */

static void prefix(work *k) {
    k->sw[0] = k->swy[0] = k->swyy[0] = 0;
    double origin = k->y[0];
    for (int i = 0; i < k->n; i++) {
        double w = k->w[i], y = k->y[i] - origin;
        k->sw[i + 1] = k->sw[i] + w;
        k->swy[i + 1] = k->swy[i] + w * y;
        k->swyy[i + 1] = k->swyy[i] + w * y * y;
    }
}

static double cost(const work *k, int a, int b) {
    double w = k->sw[b] - k->sw[a], s = k->swy[b] - k->swy[a];
    return fmax(0, k->swyy[b] - k->swyy[a] - s * s / w);
}

/* gain in squared error of splitting [a, b) at t, in units of z^2 */
static double gain(const work *k, int a, int t, int b) {
    double wl = k->sw[t] - k->sw[a], wr = k->sw[b] - k->sw[t];
    double d = (k->swy[t] - k->swy[a]) * wr - (k->swy[b] - k->swy[t]) * wl;
    return d * d / (wl * wr * (wl + wr));
}

static int best_split(const work *k, int a, int b, double *top) {
    int at = -1, m = k->set->min_segment;
    double best = 0;
    for (int t = a + m; t <= b - m; t++) {
        double g = gain(k, a, t, b);
        if (g > best) { best = g; at = t; }
    }
    *top = best;
    return at;
}

/* ---- step 3 and 4: candidates and partition ------------------------------------------------------ */

static int candidates(const work *k, int *out, char *mark, double inflation) {
    int n = k->n, m = k->set->min_segment;
    double need = k->set->candidate_z * k->set->candidate_z * sqrt(inflation);
    memset(mark, 0, n + 1);
    for (double len = n; ; len *= 0.6) {
        int size = max_i((int)len, 2 * m), step = max_i(1, size / 2), last = 0;
        for (int a = 0; !last; a += step) {
            if (a + size >= n) { a = max_i(0, n - size); last = 1; }
            double g;
            int t = best_split(k, a, min_i(n, a + size), &g);
            if (t > 0 && g >= need) mark[t] = 1;
        }
        if (size == 2 * m) break;
    }
    int count = 0;
    for (int t = 1; t < n; t++) if (mark[t]) out[count++] = t;
    return count;
}

/* exact least squares over the candidates: f(j) = min_i f(i) + cost(i, j) + penalty */
static int partition(const work *k, const int *cand, int count, double penalty, int *cuts, double *total) {
    int m = k->set->min_segment;
    int *edge = malloc((count + 2) * sizeof(int)), *from = malloc((count + 2) * sizeof(int));
    double *f = malloc((count + 2) * sizeof(double));
    if (!edge || !from || !f) { free(edge); free(from); free(f); return -1; }
    edge[0] = 0;
    memcpy(edge + 1, cand, count * sizeof(int));
    edge[count + 1] = k->n;
    f[0] = -penalty;
    for (int j = 1; j < count + 2; j++) {
        f[j] = INFINITY;
        from[j] = 0;
        for (int i = 0; i < j; i++) {
            if (edge[j] - edge[i] < m) break;
            double v = f[i] + cost(k, edge[i], edge[j]) + penalty;
            if (v < f[j]) { f[j] = v; from[j] = i; }
        }
    }
    int found = 0;
    for (int j = from[count + 1]; j > 0; j = from[j]) cuts[found++] = edge[j];
    for (int i = 0; i < found / 2; i++) { int t = cuts[i]; cuts[i] = cuts[found - 1 - i]; cuts[found - 1 - i] = t; }
    *total = f[count + 1];
    free(edge); free(from); free(f);
    return found;
}

static void replace_cut(const work *k, int *cuts, int count, int i) {
    double g;
    int a = i ? cuts[i - 1] : 0, b = i + 1 < count ? cuts[i + 1] : k->n;
    int t = best_split(k, a, b, &g);
    if (t > 0) cuts[i] = t;
}

/* ---- serial correlation and trend ---------------------------------------------------------------- */

static double level(const work *k, int a, int b) { return k->y[0] + (k->swy[b] - k->swy[a]) / (k->sw[b] - k->sw[a]); }

static void residual_facts(const work *k, const int *cuts, int count, double *rho, double *slope, double *slope_z, double *var) {
    double c1 = 0, c0 = 0, sxy = 0, sxx = 0;
    for (int s = 0; s <= count; s++) {
        int a = s ? cuts[s - 1] : 0, b = s < count ? cuts[s] : k->n;
        double mid = 0.5 * (a + b - 1), m = level(k, a, b), last = 0;
        for (int i = a; i < b; i++) {
            double r = (k->y[i] - m) * sqrt(k->w[i]);
            c0 += r * r;
            if (i > a) c1 += r * last;
            last = r;
            sxy += k->w[i] * (i - mid) * (k->y[i] - m);
            sxx += k->w[i] * (i - mid) * (i - mid);
        }
    }
    *rho = c0 > 0 ? c1 / c0 : 0;
    *slope = sxx > 0 ? sxy / sxx : 0;
    *slope_z = sxx > 0 ? sxy / sqrt(sxx) : 0;
    *var = c0 / fmax(1, k->n - count - 1);
}

/* Lag-one correlation from the variogram at lags 1 to 3 (clipped squared differences within segments): for AR(1)
 * g(k) = s^2 (1 - rho^k), hence (g2 + g3) / g1 = 2 + 2 rho + rho^2. Unlike the correlation of residuals it does not
 * shrink when too many segments are fitted. */
static double variogram_rho(const work *k, const int *cuts, int count, double unit) {
    double g[4] = {0}, cap = VCAP * unit;
    int pairs[4] = {0};
    for (int s = 0; s <= count; s++) {
        int a = s ? cuts[s - 1] : 0, b = s < count ? cuts[s] : k->n;
        for (int lag = 1; lag <= 3; lag++)
            for (int i = a + lag; i < b; i++) {
                double d = k->y[i] - k->y[i - lag];
                g[lag] += fmin(d * d * k->w[i], cap);
                pairs[lag]++;
            }
    }
    if (!pairs[3] || g[1] <= 0) return 0;
    double ratio = (g[2] / pairs[2] + g[3] / pairs[3]) / (g[1] / pairs[1]);
    return sqrt(fmax(0, ratio - 1)) - 1;
}

/* variance of the mean of h points with AR(1) correlation, relative to independent points */
static double inflation_of(double rho, double h) {
    if (rho <= 0) return 1;
    return (1 + rho) / (1 - rho) - 2 * rho * (1 - pow(rho, h)) / (h * (1 - rho) * (1 - rho));
}

/* ---- step 6: the test ------------------------------------------------------------------------------ */

/* Student's t with v degrees of freedom as a normal deviate (Wallace 1959) */
static double normal_of_t(double t, double v) {
    return (8 * v + 1) / (8 * v + 3) * sqrt(v * log1p(t * t / v));
}

/* Mann-Whitney deviate, corrected for ties */
static double rank_z(const work *k, int a, int t, int b, double *buf) {
    int nl = t - a, nr = b - t, n = nl + nr;
    memcpy(buf, k->y + a, n * sizeof(double));
    sort_small(buf, n);
    double sum = 0, ties = 0;
    for (int i = 0; i < n;) {
        int j = i;
        while (j < n && buf[j] == buf[i]) j++;
        double c = j - i;
        ties += c * c * c - c;
        i = j;
    }
    for (int i = a; i < t; i++) {
        double x = k->y[i];
        int lo = 0, hi = n;
        while (lo < hi) { int m = (lo + hi) / 2; if (buf[m] < x) lo = m + 1; else hi = m; }
        int from = lo;
        hi = n;
        while (lo < hi) { int m = (lo + hi) / 2; if (buf[m] <= x) lo = m + 1; else hi = m; }
        sum += 0.5 * (from + lo + 1);
    }
    double mean = nl * (n + 1) / 2.0, var = nl * (double)nr / 12 * (n + 1 - ties / ((double)n * (n - 1)));
    return var > 0 ? fabs(sum - mean) / sqrt(var) : 0;
}

/* Deviate of "all points of the short side lie beyond all but a few of the long side", which needs no shape of the
 * noise: chance ((beyond + 1) / (long + 1)) ^ short. */
static double run_z(const work *k, int a, int t, int b) {
    int left_short = t - a < b - t, up = level(k, t, b) > level(k, a, t);
    int s0 = left_short ? a : t, s1 = left_short ? t : b, l0 = left_short ? t : a, l1 = left_short ? b : t;
    double sign = (up != left_short) ? 1 : -1, least = INFINITY;
    for (int i = s0; i < s1; i++) least = fmin(least, sign * k->y[i]);
    int beyond = 0;
    for (int i = l0; i < l1; i++) beyond += sign * k->y[i] >= least;
    double log_p = (s1 - s0) * log((beyond + 1.0) / (l1 - l0 + 1));
    return sqrt(fmax(0, -2 * log_p - log(fmax(1, -2 * log_p)) - 0.5));
}

/* squared error of the best straight line through [a, b) minus that of the step at t */
static double line_excess(const work *k, int a, int t, int b) {
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0, wyy = 0;
    for (int i = a; i < b; i++) {
        double x = i - a, y = k->y[i] - k->y[0], u = k->w[i];
        w += u; wx += u * x; wy += u * y; wxx += u * x * x; wxy += u * x * y; wyy += u * y * y;
    }
    double sxx = wxx - wx * wx / w, sxy = wxy - wx * wy / w, syy = wyy - wy * wy / w;
    double line = syy - (sxx > 0 ? sxy * sxy / sxx : 0);
    return line - (cost(k, a, t) + cost(k, t, b));
}

static double needed(const work *k, int h) { return k->set->gate + k->set->scan * log((double)k->n / h); }

static double test(work *k, int a, int t, int b, kw_change *c) {
    const kw_settings *set = k->set;
    a = max_i(a, t - set->reach);
    b = min_i(b, t + set->reach);
    int nl = t - a, nr = b - t, h = min_i(nl, nr);
    double prior = fmin(PRIOR, k->dof);
    double pooled = prior * k->unit;
    double wl = k->sw[t] - k->sw[a], wr = k->sw[b] - k->sw[t];
    double vl = (cost(k, a, t) + pooled) / (nl - 1 + prior), vr = (cost(k, t, b) + pooled) / (nr - 1 + prior);
    c->before = level(k, a, t);
    c->after = level(k, t, b);
    double var = vl / wl * inflation_of(k->rho, nl) + vr / wr * inflation_of(k->rho, nr);
    double diff = c->after - c->before;
    double z = normal_of_t(diff / sqrt(var), k->dof);
    if (h >= 8) {
        double zr = rank_z(k, a, t, b, k->tmp) / sqrt(inflation_of(k->rho, h));
        if (zr > z) z = zr;
    }
    if (h < 8 && max_i(nl, nr) >= 25) z = fmin(z, run_z(k, a, t, b) + RUN_SLACK);
    c->index = t; c->n_before = nl; c->n_after = nr;
    c->se = sqrt(var);
    c->z = z;
    double score = z * z / needed(k, h);
    if (fabs(diff) < set->min_effect) score = fmin(score, 0.5 * fabs(diff) / set->min_effect);
    if (diff * diff * (wl + wr) / (nl + nr) < MIN_SD * MIN_SD * k->unit) score = fmin(score, 0.98);
    if (score >= 1 && line_excess(k, a, t, b) < LOCAL_LINE * k->unit * inflation_of(k->rho, h)) score = 0.99;
    return score;
}

static int eliminate(work *k, int *cuts, int count, kw_change *out) {
    double *score = malloc((count + 1) * sizeof(double));
    if (!score) return -1;
    for (int i = 0; i < count; i++)
        score[i] = test(k, i ? cuts[i - 1] : 0, cuts[i], i + 1 < count ? cuts[i + 1] : k->n, out + i);
    while (count) {
        int weak = 0;
        for (int i = 1; i < count; i++) if (score[i] < score[weak]) weak = i;
        if (score[weak] >= 1) break;
        count--;
        for (int i = weak; i < count; i++) { cuts[i] = cuts[i + 1]; score[i] = score[i + 1]; out[i] = out[i + 1]; }
        for (int i = max_i(0, weak - 1); i <= weak && i < count; i++) replace_cut(k, cuts, count, i);
        for (int i = max_i(0, weak - 2); i <= weak + 1 && i < count; i++)
            score[i] = test(k, i ? cuts[i - 1] : 0, cuts[i], i + 1 < count ? cuts[i + 1] : k->n, out + i);
    }
    free(score);
    return count;
}

/* ---- two levels that interleave ------------------------------------------------------------------- */

/* Otsu's split of the residuals of at most the last 256 points; two levels are reported when they lie far apart,
 * both are well filled, and the series goes back and forth between them. */
static void find_modes(work *k, const double *raw, const int *cuts, int count, kw_facts *facts) {
    int n = k->n, first = max_i(0, n - 256), m = n - first;
    if (m < 12) return;
    double *r = k->tmp, *sorted = k->tmp2, sum = 0, total = 0;
    for (int s = 0; s <= count; s++) {
        int a = s ? cuts[s - 1] : 0, b = s < count ? cuts[s] : n;
        double at = level(k, a, b);
        for (int i = max_i(a, first); i < b; i++) r[i - first] = raw[i] - facts->slope * i - at;
    }
    memcpy(sorted, r, m * sizeof(double));
    sort_small(sorted, m);
    for (int i = 0; i < m; i++) { total += sorted[i]; sum += sorted[i] * sorted[i]; }
    double left = 0, best = 0, split = 0, gap = 0;
    int below = 0;
    for (int i = 1; i < m; i++) {
        left += sorted[i - 1];
        double d = (total - left) / (m - i) - left / i, between = d * d * i * (m - i) / m;
        if (between > best) { best = between; split = 0.5 * (sorted[i - 1] + sorted[i]); gap = d; below = i; }
    }
    double within = sqrt(fmax(sum - total * total / m - best, 0) / (m - 2));
    int switches = 0;
    for (int i = 1; i < m; i++) switches += (r[i] > split) != (r[i - 1] > split);
    double share = 1 - (double)below / m, expected = 2 * share * (1 - share) * (m - 1);
    double separation = gap / fmax(within, k->set->sd_floor);
    if (separation < 3.4 || fmin(share, 1 - share) < 0.08 || switches < 4 || switches < 0.5 * expected) return;
    facts->mode_gap = gap;
    facts->mode_share = share;
    facts->mode_separation = separation;
}

static int segment(work *k, double pen, int *cand, char *mark, int *cuts, double *total, double inflation) {
    int count = candidates(k, cand, mark, inflation);
    return partition(k, cand, count, pen, cuts, total);
}

static void measure_levels(const work *k, const int *cuts, int count, kw_level *out) {
    for (int s = 0; s <= count; s++) {
        int a = s ? cuts[s - 1] : 0, b = s < count ? cuts[s] : k->n;
        out[s] = (kw_level){a, b - a, level(k, a, b), sqrt(k->unit * inflation_of(k->rho, b - a) / (k->sw[b] - k->sw[a]))};
    }
}

static double mixed_rho(double seen, double variogram, int count, int n) {
    seen += (1 + 3 * seen) * (count + 1) / n;
    double r = RHO_MIX * fmax(seen, variogram) + (1 - RHO_MIX) * 0.5 * (seen + variogram) + RHO_SE / sqrt(n);
    if (RHO_MIX > 1) r = seen + RHO_SE / sqrt(n);
    if (RHO_MIX < 0) r = variogram + RHO_SE / sqrt(n);
    return fmin(0.9, fmax(0, r));
}

/* One explanation of the series: steps, with or without a common slope. */
typedef struct {
    double slope, rho, unit, error, needed;
    double more, more_z; /* slope left within the segments */
    int count, tried, *cuts;
} model;

static int solve(work *k, model *m, int *cand, char *mark, kw_change *out) {
    int n = k->n;
    for (int i = 0; i < n; i++) k->y[i] = k->clean[i] - m->slope * i;
    prefix(k);
    double pen = k->set->penalty * log(n), total, rho, var;
    k->rho = 0;
    m->count = segment(k, pen, cand, mark, m->cuts, &total, 1);
    residual_facts(k, m->cuts, m->count, &rho, &m->more, &m->more_z, &var);
    m->unit = k->unit = fmax(UNIT_FLOOR, var);
    m->rho = k->rho = mixed_rho(rho, variogram_rho(k, m->cuts, m->count, m->unit), m->count, n);
    m->tried = m->count;
    double infl = (1 + m->rho) / (1 - m->rho);
    if (infl * m->unit < 0.95 || (m->count && infl * m->unit > 1.05)) m->count = segment(k, pen * infl * m->unit, cand, mark, m->cuts, &total, infl * m->unit);
    k->dof = fmax(2, n - m->count - 1);
    m->count = eliminate(k, m->cuts, m->count, out);
    residual_facts(k, m->cuts, m->count, &rho, &m->more, &m->more_z, &var);
    m->error = var * fmax(1, n - m->count - 1);
    m->needed = 0;
    for (int i = 0; i < m->count; i++) m->needed += needed(k, min_i(out[i].n_before, out[i].n_after));
    return m->count;
}

/* Steps 3 to 6 on the points in k, whose weights are set. */
static int find_changes(work *k, const double *raw, int *ints, char *mark, kw_change *out, kw_change *spare, kw_facts *facts) {
    int n = k->n, *cand = ints;
    model flat = {.cuts = ints + n}, sloped = {.cuts = ints + 2 * n};
    model *best = &flat;
    if (solve(k, &flat, cand, mark, out) < 0) return -1;
    if (flat.tried && n >= 20) {
        sloped.more = flat.more;
        sloped.more_z = flat.more_z;
        model line = {.cuts = ints + 3 * n, .count = 0};
        k->unit = flat.unit;
        double rho_, var_;
        for (int i = 0; i < n; i++) k->y[i] = k->clean[i];
        prefix(k);
        residual_facts(k, line.cuts, 0, &rho_, &line.slope, &line.more_z, &var_);
        for (int round = 0; round < TREND_ROUNDS; round++) {
            if (solve(k, &line, cand, mark, spare) < 0) return -1;
            if (fabs(line.more_z) < 0.7) break;
            line.slope += line.more;
        }
        for (int round = 0; round < TREND_ROUNDS && fabs(sloped.more_z) > 0.7; round++) {
            sloped.slope += sloped.more;
            if (solve(k, &sloped, cand, mark, spare) < 0) return -1;
        }
        if (line.error / flat.unit + line.needed < (sloped.slope != 0 ? sloped.error / flat.unit + sloped.needed : INFINITY)) {
            solve(k, &line, cand, mark, spare);
            memcpy(sloped.cuts, line.cuts, line.count * sizeof(int));
            int *keep = sloped.cuts;
            sloped = line;
            sloped.cuts = keep;
        }
        double unit = fmin(flat.unit, sloped.unit ? sloped.unit : flat.unit) * (1 + sloped.rho) / (1 - sloped.rho);
        if (sloped.slope != 0 && sloped.error / unit + sloped.needed + TREND_PEN * k->set->line_margin < flat.error / unit + flat.needed)
            best = &sloped;
    }
    if (best == &sloped) {
        memcpy(out, spare, sloped.count * sizeof *out);
        memcpy(flat.cuts, sloped.cuts, sloped.count * sizeof(int));
    } else if (sloped.slope != 0) {
        for (int i = 0; i < n; i++) k->y[i] = k->clean[i];
        prefix(k);
    }
    k->rho = best->rho;
    facts->rho = best->rho;
    facts->slope = best->slope;
    facts->noise_sd *= sqrt(best->unit);
    k->unit = best->unit;
    find_modes(k, raw, flat.cuts, best->count, facts);
    return best->count;
}

/* values: the points in commit order; se: their standard errors on the same scale, or NULL. Writes the changes and the
 * levels between them (room for n / min_segment + 1 of each). Returns the number of changes, KW_NO_MEMORY, or
 * KW_BAD_POINT - i where point i (or its error) is not a finite number above zero (not negative). */
enum { KW_NO_MEMORY = -1, KW_BAD_POINT = -2 };

int kw_detect(const double *values, const double *se, int n, const kw_settings *set, kw_change *out,
              kw_level *levels, kw_facts *facts) {
    for (int i = 0; i < n; i++)
        if (!(values[i] > 0 && values[i] < INFINITY) || (se && !(se[i] >= 0 && se[i] < INFINITY))) return KW_BAD_POINT - i;
    double *block = malloc((size_t)(10 * n + 36) * sizeof(double));
    int *ints = malloc((size_t)(5 * n + 16) * sizeof(int));
    char *mark = malloc((size_t)n + 1);
    kw_change *spare = malloc((size_t)(n / set->min_segment + 1) * sizeof *spare);
    if (!block || !ints || !mark || !spare) { free(block); free(ints); free(mark); free(spare); return KW_NO_MEMORY; }
    work k = {.n = n, .set = set, .y = block, .w = block + n, .sw = block + 2 * n, .swy = block + 3 * n + 4,
              .swyy = block + 4 * n + 8, .tmp = block + 5 * n + 12, .tmp2 = block + 6 * n + 16};
    double *raw = block + 7 * n + 20, *relative = block + 8 * n + 24;
    k.clean = block + 9 * n + 28;
    for (int i = 0; i < n; i++) raw[i] = log(values[i]);
    if (se) for (int i = 0; i < n; i++) relative[i] = se[i] / values[i];
    memset(facts, 0, sizeof *facts);
    double sd = n > 1 ? fmax(difference_sd(raw, n, k.tmp), set->sd_floor) : set->sd_floor;
    pull_in_spikes(&k, raw, sd);
    facts->se_slope = weigh_points(&k, se ? relative : 0, sd);
    facts->noise_sd = sd;
    memcpy(k.clean, k.y, n * sizeof(double));
    int count = 0;
    if (n >= 2 * set->min_segment) count = find_changes(&k, raw, ints, mark, out, spare, facts);
    else { k.unit = 1; prefix(&k); }
    if (count >= 0) measure_levels(&k, ints + n, count, levels);
    free(block); free(ints); free(mark); free(spare);
    return count;
}
