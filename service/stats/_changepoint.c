/* Change points in one noisy series: the hot path of the detector. README.md beside this file explains the maths.
 *
 *   1 spikes     pull single wild points towards the running median
 *   2 noise      robust scale, its slow change along the series, the points' own errors -> a weight for each point
 *   3 candidates best split of each interval of a seeded family (Kovacs et al., Biometrika 2023), O(n log n)
 *   4 partition  exact weighted least squares over the candidates, a penalty for each change
 *   5 test       weakest change out until every one passes a scan-corrected test against its neighbours
 *   6 trend      the same with a common slope; kept only when that is the cheaper explanation
 *
 * Steps 1 and 2 are in changepoint_noise.h, 3 and 4 in changepoint_segments.h, the rest here.
 * Plain C11, no dependency but libm, no state between calls. All arithmetic is on logarithms.
 */
#include "changepoint_segments.h"

/* which sources this library was built from: structures that changed since would be read wrongly, without an error */
#ifndef KW_SOURCES
#define KW_SOURCES "by hand"
#endif
const char *kw_sources(void) { return KW_SOURCES; }

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
