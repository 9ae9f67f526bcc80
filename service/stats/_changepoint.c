/* Change points in one noisy series: the hot path of the detector. README.md beside this file explains the maths.
 *
 *   1 spikes     pull single wild points towards the running median
 *   2 noise      robust scale, its slow change along the series, the points' own errors -> a weight for each point
 *   3 candidates best split of each interval of a seeded family (Kovacs et al., Biometrika 2023), O(n log n)
 *   4 partition  exact weighted least squares over the candidates, a penalty for each change
 *   5 test       weakest change out until every one passes a scan-corrected test against its neighbours
 *   6 trend      the same with a common slope; kept only when that is the cheaper explanation
 *
 * Plain C11, no dependency but libm, no state between calls. All arithmetic is on logarithms.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    double clip_sd;     /* a residual beyond this many robust sd is a spike */
    double sd_floor;    /* smallest sd believed */
    double candidate_z; /* a split weaker than this is not even a candidate */
    double penalty;     /* cost of a change in the partition, times ln n */
    double gate, scan;  /* z^2 needed: gate + scan * ln(n / points of the shorter side) */
    double min_effect;  /* smallest step kept */
    double min_sd;      /* the same, in sd of one point */
    double run_slack;   /* how much the run test may fall short of the mean test on short sides */
    double place_margin;/* a change must beat every place more than five points away by this much squared z */
    double trend_cost;  /* what a slope costs against steps, in squared z */
    int min_segment;    /* points */
    int reach;          /* points a side that the test looks at */
} kw_settings;

typedef struct {
    int index, n_before, n_after;
    double before, after; /* levels, trend removed */
    double se;            /* standard error of after - before */
    double z;
    double over_line;     /* squared z by which the step beats one straight line over both sides */
} kw_change;

typedef struct {
    int start, n;
    double at, se; /* level of the whole segment and its standard error */
} kw_level;

typedef struct {
    double noise_sd;        /* of one point */
    double rho;             /* lag-one serial correlation, >= 0 */
    double slope, slope_z;  /* per point; 0 where no trend was kept */
    double se_share;        /* how much of the claimed squared errors is real, 0 .. 2; 0 = not used */
    double mode_gap, mode_share, mode_separation; /* two levels that interleave; gap 0 where there is one */
} kw_facts;

enum { NO_MEMORY = -1, BAD_POINT = -2 };

/* One explanation of the series: steps, with or without a common slope. */
typedef struct {
    double slope, more, more_z; /* slope taken out, and slope left within the segments */
    double rho, unit;           /* correlation; variance of one point over 1 / weight */
    double error, needed;       /* squared error left; sum of what the kept changes had to reach */
    int count, tried, *cuts;    /* kept changes; changes before the test */
    kw_change *changes;
} model;

typedef struct {
    int n;
    const kw_settings *set;
    double *raw, *clean;      /* logarithms; the same with spikes pulled in */
    double *y, *w;            /* clean less the slope of the model at hand; weight = 1 / variance */
    double *sw, *swy, *swyy;  /* prefix sums */
    double *gains, *tmp, *tmp2;
    int *cand, edges;
    char *mark;
    double rho, unit, dof;    /* of the model at hand */
} work;

/* one instruction each, where fmin and fmax are calls; no argument here is NaN */
static double lesser(double a, double b) { return a < b ? a : b; }
static double greater(double a, double b) { return a > b ? a : b; }
static int min_i(int a, int b) { return a < b ? a : b; }
static int max_i(int a, int b) { return a > b ? a : b; }

/* ---- order statistics ------------------------------------------------------------------------------------- */

static double kth(double *a, int n, int k) { /* Hoare's quickselect; reorders a */
    for (int lo = 0, hi = n - 1; lo < hi;) {
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

static double quantile(double *a, int n, double q) { return kth(a, n, min_i(n - 1, (int)(q * (n - 1) + 0.5))); }

static void sort(double *a, int n) { /* Shell sort with Ciura's gaps: arrays are short */
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
    double low = lesser(*a, *b);
    *b = greater(*a, *b);
    *a = low;
}

/* medians: the middle of a sorting network */
static double median5(const double *y) {
    double a = y[0], b = y[1], c = y[2], d = y[3], e = y[4];
    order(&a, &b); order(&d, &e); order(&a, &d); order(&b, &e);
    order(&b, &c); order(&c, &d); order(&b, &c);
    return c;
}

static double median7(const double *y) {
    double a = y[0], b = y[1], c = y[2], d = y[3], e = y[4], f = y[5], g = y[6];
    order(&a, &f); order(&a, &d); order(&b, &g); order(&c, &e); order(&a, &b); order(&d, &f); order(&c, &g);
    order(&c, &d); order(&d, &g); order(&e, &f); order(&b, &e); order(&b, &d); order(&d, &e);
    return d;
}

/* ---- 1 and 2: spikes and noise ---------------------------------------------------------------------------- */

/* sd of one point from lag-one differences: the larger of the MAD and an 85 % quantile, so that a second mode counts
 * as noise, while a level change, being one difference, does not. */
static double difference_sd(const double *y, int n, double *tmp) {
    for (int i = 0; i + 1 < n; i++) tmp[i] = fabs(y[i + 1] - y[i]);
    int m = n - 1, half = m / 2, far = min_i(m - 1, (int)(0.85 * (m - 1) + 0.5));
    double mid = kth(tmp, m, half), high = kth(tmp + half, m - half, max_i(0, far - half)); /* what is above mid lies right */
    return greater(mid / 0.6745, high / 1.4395) / 1.4142135623730951;
}

/* A spike is far from the median of every window of seven that holds it (of five at the two ends): bursts of up to
 * three are, of up to two at the ends, so that the third point of a new level speaks. It is pulled to one sd from the
 * nearest of those medians. */
static void pull_in_spikes(work *k, double sd) {
    int n = k->n;
    double far = k->set->clip_sd * sd, *med = k->tmp;
    const double *raw = k->raw;
    memcpy(k->clean, raw, n * sizeof(double));
    if (n < 5) return;
    for (int i = 0; i + 6 < n; i++) med[i] = median7(raw + i);
    double first = median5(raw), last = median5(raw + n - 5);
    for (int i = 0; i < n; i++) {
        double off = INFINITY;
        if (i >= 3 && i + 3 < n && fabs(raw[i] - med[i - 3]) <= far) continue;
        for (int j = max_i(0, i - 6); j <= min_i(i, n - 7); j++)
            if (fabs(raw[i] - med[j]) < fabs(off)) off = raw[i] - med[j];
        if (i < 5 && fabs(raw[i] - first) < fabs(off)) off = raw[i] - first;
        if (i >= n - 5 && fabs(raw[i] - last) < fabs(off)) off = raw[i] - last;
        if (fabs(off) > far) k->clean[i] = raw[i] - off + copysign(sd, off);
    }
}

/* The scale may change slowly: running mean of clipped squared differences, shrunk to the global one. */
static void weigh_by_scale(work *k, double sd) {
    enum { HALF = 15, PRIOR = 10 };
    int n = k->n, a = 0, b = 0;
    double *d = k->tmp, total = 0, run = 0, cap = 9 * sd * sd;
    for (int i = 0; i + 1 < n; i++) {
        double x = k->clean[i + 1] - k->clean[i];
        total += d[i] = lesser(x * x, cap) / 2;
    }
    double mean = greater(total / max_i(1, n - 1), 1e-300);
    for (int i = 0; i < n; i++) {
        while (b < min_i(n - 1, i + HALF)) run += d[b++];
        while (a < i - HALF) run -= d[a++];
        double ratio = (greater(run, 0) + PRIOR * mean) / ((b - a + PRIOR) * mean);
        k->w[i] = 1 / greater(sd * sd * ratio, k->set->sd_floor * k->set->sd_floor);
    }
}

/* Do points that claim a larger error scatter more? The slope of squared residual on squared error, between the lower
 * third and the upper fifth of the errors, is the share of the claim that is real; only then do errors weigh. */
static double weigh_by_error(work *k, const double *se, double sd) {
    int n = k->n;
    if (n < 12) return 0;
    memcpy(k->tmp2, se, n * sizeof(double));
    double lo = quantile(k->tmp2, n, 1.0 / 3), hi = quantile(k->tmp2, n, 0.8);
    double v[2] = {0}, s[2] = {0};
    int count[2] = {0};
    for (int i = 0; i < n; i++) {
        if (se[i] > lo && se[i] < hi) continue;
        double r = lesser(fabs(k->clean[i] - median5(k->clean + min_i(max_i(0, i - 2), n - 5))), 5 * sd);
        int upper = se[i] >= hi;
        v[upper] += r * r; s[upper] += se[i] * se[i]; count[upper]++;
    }
    if (!count[0] || !count[1]) return 0;
    for (int u = 0; u < 2; u++) { v[u] /= count[u]; s[u] /= count[u]; }
    if (s[1] < 1.5 * s[0] || v[1] < 1.5 * v[0]) return 0;
    double share = lesser(2, (v[1] - v[0]) / (s[1] - s[0]));
    double base = greater(greater(v[0] - share * s[0], 0.2 * v[0]), k->set->sd_floor * k->set->sd_floor);
    for (int i = 0; i < n; i++) k->w[i] = 1 / (base + share * se[i] * se[i]);
    return share;
}

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

/* ---- 5: the test ------------------------------------------------------------------------------------------- */

/* Student's t with v degrees of freedom as a normal deviate (Wallace 1959) */
static double normal_of_t(double t, double v) { return (8 * v + 1) / (8 * v + 3) * sqrt(v * log1p(t * t / v)); }

/* Mann-Whitney deviate with mid-ranks and the correction for ties */
static double rank_z(const work *k, int a, int t, int b) {
    int nl = t - a, nr = b - t, n = nl + nr;
    double *v = k->tmp, sum = 0, ties = 0;
    memcpy(v, k->y + a, n * sizeof(double));
    sort(v, n);
    for (int i = a; i < t; i++) {
        double x = k->y[i];
        int lo = 0, hi = n, up;
        while (lo < hi) { int m = (lo + hi) / 2; if (v[m] < x) lo = m + 1; else hi = m; }
        for (up = lo; up < n && v[up] == x; up++) {}
        sum += 0.5 * (lo + up + 1);
    }
    for (int i = 0, j; i < n; i = j) {
        for (j = i; j < n && v[j] == v[i]; j++) {}
        double same = j - i;
        ties += same * same * same - same;
    }
    double var = nl * (double)nr / 12 * (n + 1 - ties / ((double)n * (n - 1)));
    return var > 0 ? fabs(sum - nl * (n + 1) / 2.0) / sqrt(var) : 0;
}

/* Deviate of "all points of the short side lie beyond all but a few of the long side", which needs no shape of the
 * noise: its chance is ((beyond + 1) / (long + 1)) ^ short. */
static double run_z(const work *k, int a, int t, int b) {
    int left_short = t - a < b - t, up = level(k, t, b) > level(k, a, t), beyond = 0;
    int s0 = left_short ? a : t, s1 = left_short ? t : b, l0 = left_short ? t : a, l1 = left_short ? b : t;
    double sign = up != left_short ? 1 : -1, least = INFINITY;
    for (int i = s0; i < s1; i++) least = lesser(least, sign * k->y[i]);
    for (int i = l0; i < l1; i++) beyond += sign * k->y[i] >= least;
    double twice = -2 * (s1 - s0) * log((beyond + 1.0) / (l1 - l0 + 1));
    return sqrt(greater(0, twice - log(greater(1, twice)) - 0.5));
}

/* How much better t splits [a, b) than any place more than five points away: is the commit known? */
static double place_margin(const work *k, int a, int t, int b) {
    enum { NEAR = 5 };
    int first = a + k->set->min_segment, last = b - k->set->min_segment;
    double best, rest = 0;
    best_split(k, a, b, &best); /* leaves the gain of every place, over the total weight, in k->gains */
    for (int u = first; u < t - NEAR; u++) rest = greater(rest, k->gains[u - first]);
    for (int u = t + NEAR + 1; u <= last; u++) rest = greater(rest, k->gains[u - first]);
    return (k->gains[t - first] - rest) * (k->sw[b] - k->sw[a]);
}

static double needed(const work *k, int h) { return k->set->gate + k->set->scan * log((double)k->n / h); }

/* Test the change at t between its neighbours; returns z^2 over what is needed, below 1 = not a change. Welch's t with
 * side variances shrunk to the pool, or ranks where both sides are long enough; short sides must pass the run test; the
 * step must matter and its place be known. */
static double test(work *k, int a, int t, int b, kw_change *c) {
    enum { PRIOR = 10, RANKS = 8, LONG = 25 };
    const kw_settings *set = k->set;
    a = max_i(a, t - set->reach);
    b = min_i(b, t + set->reach);
    int nl = t - a, nr = b - t, h = min_i(nl, nr);
    double prior = lesser(PRIOR, k->dof), wl = k->sw[t] - k->sw[a], wr = k->sw[b] - k->sw[t];
    double vl = (cost(k, a, t) + prior * k->unit) / (nl - 1 + prior);
    double vr = (cost(k, t, b) + prior * k->unit) / (nr - 1 + prior);
    *c = (kw_change){t, nl, nr, level(k, a, t), level(k, t, b),
                     sqrt(vl / wl * inflation_of(k->rho, nl) + vr / wr * inflation_of(k->rho, nr)), 0, 0};
    double step = fabs(c->after - c->before);
    c->z = normal_of_t(step / c->se, k->dof);
    double need = needed(k, h);
    if (h >= RANKS && c->z * c->z < need) c->z = greater(c->z, rank_z(k, a, t, b) / sqrt(inflation_of(k->rho, h)));
    if (h < RANKS && max_i(nl, nr) >= LONG) c->z = lesser(c->z, run_z(k, a, t, b) + set->run_slack);
    double sd = sqrt(k->unit * (nl + nr) / (wl + wr)), small = lesser(step / set->min_effect, step / (set->min_sd * sd));
    double score = lesser(c->z * c->z / need, small);
    if (score >= 1 && place_margin(k, a, t, b) < set->place_margin * k->unit * inflation_of(k->rho, h)) score = 0.97;
    return score;
}

static void test_all(work *k, model *m, double *score, int first, int last) {
    for (int i = max_i(0, first); i <= last && i < m->count; i++)
        score[i] = test(k, i ? m->cuts[i - 1] : 0, m->cuts[i], i + 1 < m->count ? m->cuts[i + 1] : k->n, m->changes + i);
}

/* Weakest out, its neighbours placed anew and tested again, until all pass. */
static void eliminate(work *k, model *m) {
    double score[m->count + 1], gain;
    test_all(k, m, score, 0, m->count);
    while (m->count) {
        int weak = 0;
        for (int i = 1; i < m->count; i++) if (score[i] < score[weak]) weak = i;
        if (score[weak] >= 1) return;
        m->count--;
        for (int i = weak; i < m->count; i++) {
            m->cuts[i] = m->cuts[i + 1]; score[i] = score[i + 1]; m->changes[i] = m->changes[i + 1];
        }
        for (int i = max_i(0, weak - 1); i <= weak && i < m->count; i++) {
            int t = best_split(k, i ? m->cuts[i - 1] : 0, i + 1 < m->count ? m->cuts[i + 1] : k->n, &gain);
            if (t > 0) m->cuts[i] = t;
        }
        test_all(k, m, score, weak - 2, weak + 1);
    }
}

/* Steps 3 to 5 with m->slope taken out. */
static void solve(work *k, model *m) {
    prefix(k, m->slope);
    double penalty = k->set->penalty * log(k->n);
    candidates(k);
    m->tried = m->count = partition(k, penalty, m->cuts);
    look_at_residuals(k, m);
    k->rho = m->rho;
    k->unit = m->unit;
    double inflation = m->unit * (1 + m->rho) / (1 - m->rho), first = m->more, first_z = m->more_z;
    m->count = partition(k, penalty * inflation, m->cuts);
    k->dof = max_i(3, k->n - m->count);
    if (m->tried || m->count) {
        eliminate(k, m);
        look_at_residuals(k, m);
        m->rho = k->rho;
        m->unit = k->unit;
    }
    if (!m->count && m->tried) { m->more = first; m->more_z = first_z; }
    m->needed = 0;
    for (int i = 0; i < m->count; i++) m->needed += needed(k, min_i(m->changes[i].n_before, m->changes[i].n_after));
}

/* ---- 6: trend ----------------------------------------------------------------------------------------------- */

static void solve_with_slope(work *k, model *m, double slope) {
    m->slope = slope;
    for (int round = 0; round < 3; round++) {
        solve(k, m);
        if (fabs(m->more_z) < 0.7) return;
        if (round < 2) m->slope += m->more;
    }
}

/* Squared error of the best straight line through [a, b) beyond that of the step at t. */
static double line_excess(const work *k, int a, int t, int b) {
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (int i = a; i < b; i++) {
        double x = i - a, u = k->w[i], y = k->y[i] - k->y[a];
        w += u; wx += u * x; wy += u * y; wxx += u * x * x; wxy += u * x * y;
    }
    double sxx = wxx - wx * wx / w, sxy = wxy - wx * wy / w;
    return cost(k, a, b) - sxy * sxy / sxx - cost(k, a, t) - cost(k, t, b);
}

/* Whether a slope could be the cheaper explanation: it would have to pay for itself, or replace a step. */
static int slope_may_win(const work *k, const model *flat) {
    if (flat->tried != flat->count || flat->more_z * flat->more_z > 0.3 * k->set->trend_cost * flat->unit) return 1;
    for (int i = 0; i < flat->count; i++) {
        int a = i ? flat->cuts[i - 1] : 0, b = i + 1 < flat->count ? flat->cuts[i + 1] : k->n;
        if (line_excess(k, a, flat->cuts[i], b) < 2 * k->set->gate * flat->unit) return 1;
    }
    return 0;
}

/* The cheapest of: steps; steps on a slope begun from what the steps leave; the same begun from one straight line. */
static model *choose(work *k, model *flat, model *sloped, model *line) {
    enum { FEWEST = 20 };
    solve(k, flat);
    if (!flat->tried || k->n < FEWEST || !slope_may_win(k, flat)) return flat;
    solve_with_slope(k, sloped, flat->more);
    prefix(k, 0);
    line->count = 0;
    look_at_residuals(k, line);
    solve_with_slope(k, line, line->more);
    model *best = flat, *all[] = {sloped, line};
    double unit = lesser(flat->unit, lesser(sloped->unit, line->unit)) * (1 + sloped->rho) / (1 - sloped->rho);
    double least = flat->error / unit + flat->needed;
    for (int i = 0; i < 2; i++) {
        double v = all[i]->error / unit + all[i]->needed + k->set->trend_cost;
        if (v < least) { least = v; best = all[i]; }
    }
    return best;
}

/* ---- two levels that interleave ----------------------------------------------------------------------------- */

/* Otsu's split of the residuals of at most the last 256 points; two levels are reported when they lie far apart, both
 * are well filled, and the series goes back and forth between them. Moments first: one level is the usual case. */
static void find_modes(work *k, const model *m, kw_facts *facts) {
    int first = max_i(0, k->n - 256), n = k->n - first, below = 0, switches = 0;
    if (n < 12) return;
    double *r = k->tmp, *sorted = k->tmp2, sum = 0, m2 = 0, m3 = 0, m4 = 0, left = 0, best = 0, split = 0;
    for (int s = 0; s <= m->count; s++) {
        int a = s ? m->cuts[s - 1] : 0, b = s < m->count ? m->cuts[s] : k->n;
        double at = level(k, a, b);
        for (int i = max_i(a, first); i < b; i++) sum += r[i - first] = k->raw[i] - m->slope * i - at;
    }
    for (int i = 0; i < n; i++) {
        double d = r[i] - sum / n, d2 = d * d;
        m2 += d2 / n; m3 += d2 * d / n; m4 += d2 * d2 / n;
    }
    if (m2 <= 0 || (m3 * m3 / (m2 * m2 * m2) + 1) / (m4 / (m2 * m2)) < 0.45) return; /* Sarle's coefficient */
    memcpy(sorted, r, n * sizeof(double));
    sort(sorted, n);
    for (int i = 1; i < n; i++) {
        left += sorted[i - 1];
        double d = (sum - left) / (n - i) - left / i, between = d * d * i * (n - i) / n;
        if (between > best) { best = between; below = i; split = 0.5 * (sorted[i - 1] + sorted[i]); }
    }
    for (int i = 1; i < n; i++) switches += (r[i] > split) != (r[i - 1] > split);
    double share = 1 - (double)below / n, gap = sqrt(best * n / ((double)below * (n - below)));
    double within = greater(sqrt(greater(m2 * n - best, 0) / (n - 2)), k->set->sd_floor);
    if (gap < 3.4 * within || lesser(share, 1 - share) < 0.08 || switches < greater(4, share * (1 - share) * (n - 1))) return;
    facts->mode_gap = gap;
    facts->mode_share = share;
    facts->mode_separation = gap / within;
}

/* ---- the one entry ------------------------------------------------------------------------------------------ */

static int find(work *k, const double *se, model models[3], kw_change *out, kw_level *levels, kw_facts *facts) {
    double sd = k->n > 1 ? greater(difference_sd(k->raw, k->n, k->tmp), k->set->sd_floor) : k->set->sd_floor;
    model *m = models;
    pull_in_spikes(k, sd);
    weigh_by_scale(k, sd);
    if (se) facts->se_share = weigh_by_error(k, se, sd);
    m->unit = 1;
    if (k->n >= 2 * k->set->min_segment) m = choose(k, models, models + 1, models + 2);
    prefix(k, m->slope);
    facts->noise_sd = sqrt(m->unit * k->n / k->sw[k->n]);
    facts->rho = m->rho;
    facts->slope = m->slope;
    facts->slope_z = models[0].more_z;
    find_modes(k, m, facts);
    for (int i = 0; i < m->count; i++) {
        kw_change *c = out + i;
        *c = m->changes[i];
        int a = c->index - c->n_before, b = c->index + c->n_after, h = min_i(c->n_before, c->n_after);
        c->over_line = line_excess(k, a, c->index, b) / (m->unit * inflation_of(m->rho, h));
    }
    for (int s = 0; s <= m->count; s++) {
        int a = s ? m->cuts[s - 1] : 0, b = s < m->count ? m->cuts[s] : k->n;
        double se_at = sqrt(m->unit * inflation_of(m->rho, b - a) / (k->sw[b] - k->sw[a]));
        levels[s] = (kw_level){a, b - a, level(k, a, b), se_at};
    }
    return m->count;
}

/* values: the points in commit order; se: their standard errors on the same scale, or NULL. Writes the changes and the
 * levels between them (room for n / min_segment + 1 of each). Returns the number of changes, NO_MEMORY, or
 * BAD_POINT - i where point i is not a finite number above zero or its error not finite and >= 0. */
int kw_detect(const double *values, const double *se, int n, const kw_settings *set, kw_change *out, kw_level *levels,
              kw_facts *facts) {
    for (int i = 0; i < n; i++)
        if (!(values[i] > 0 && values[i] < INFINITY) || (se && !(se[i] >= 0 && se[i] < INFINITY))) return BAD_POINT - i;
    enum { ARRAYS = 11 };
    size_t room = (size_t)n + 8, changes = n / set->min_segment + 1;
    double *block = malloc(ARRAYS * room * sizeof *block + 4 * room * sizeof(int) + 3 * changes * sizeof(kw_change) + room);
    if (!block) return NO_MEMORY;
    work k = {.n = n, .set = set, .raw = block, .clean = block + room, .y = block + 2 * room, .w = block + 3 * room,
              .sw = block + 4 * room, .swy = block + 5 * room, .swyy = block + 6 * room, .gains = block + 7 * room,
              .tmp = block + 8 * room, .tmp2 = block + 9 * room};
    double *relative = block + 10 * room;
    kw_change *spare = (kw_change *)(block + ARRAYS * room);
    int *ints = (int *)(spare + 3 * changes);
    k.cand = ints;
    k.mark = (char *)(ints + 4 * room);
    model models[3] = {0};
    for (int i = 0; i < 3; i++) { models[i].cuts = ints + (i + 1) * room; models[i].changes = spare + i * changes; }
    for (int i = 0; i < n; i++) k.raw[i] = log(values[i]);
    if (se) for (int i = 0; i < n; i++) relative[i] = se[i] / values[i];
    memset(facts, 0, sizeof *facts);
    int count = find(&k, se ? relative : NULL, models, out, levels, facts);
    free(block);
    return count;
}
