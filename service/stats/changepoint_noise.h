/* Types of the detector, order statistics, and steps 1 and 2 of _changepoint.c: spikes and noise. */
#pragma once
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
