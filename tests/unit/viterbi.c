/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Viterbi solvers: against brute force over every path of a small trellis,
 * against one another on random blocks and on blocks made of ties, and against
 * the error that the code is known to reach on Gaussian weights.
 * TCQ_FULL=1 compares a million blocks, TCQ_QUICK=1 few (for emulated
 * processors).
 */
#include "support/test.h"

#include "base/memory.h"
#include "code/code.h"
#include "encode/viterbi.h"
#include "tcq.h"

enum { T_MAX = 256, B_MAX = TCQ_VITERBI_BLOCKS_MAX };

enum effort { QUICK, NORMAL, FULL };

static enum effort effort(void)
{
    return getenv("TCQ_FULL") ? FULL : getenv("TCQ_QUICK") ? QUICK : NORMAL;
}

/* One solver with its tables and workspace for one k, L, T. */
struct instance {
    const struct tcq_viterbi *solver;
    struct tcq_trellis trellis;
    uint32_t T;
    void *work;
};

static struct instance instance_open(const struct tcq_viterbi *solver, uint32_t k, uint32_t L,
                                     uint32_t T)
{
    struct instance s = {.solver = solver, .T = T};
    size_t nbytes = 0, work_nbytes = solver->work_nbytes(k, L, T);
    assert_int_equal(tcq_trellis_init(&s.trellis, solver, k, L, &nbytes, NULL), TCQ_OK);
    s.work = tcq_alloc(work_nbytes, 1);
    memset(s.work, 0xff, work_nbytes); /* NaN: nothing may be read before it is written */
    return s;
}

static void instance_close(struct instance *s)
{
    tcq_trellis_free(&s->trellis);
    tcq_free(s->work);
}

static void instance_solve(uint16_t *states, const float *x, uint32_t blocks,
                           const struct instance *s)
{
    s->solver->solve(states, x, s->T, blocks, &s->trellis, s->work);
}

static bool runs_here(const struct tcq_viterbi *solver)
{
    return !(solver->cpu_flags & ~tcq_cpu_detect());
}

static void assert_closed(const uint16_t *states, uint32_t k, uint32_t L, uint32_t T)
{
    for (uint32_t t = 0; t < T; t++) {
        uint32_t next = states[t + 1 == T ? 0 : t + 1];
        assert_true(states[t] < 1u << L);
        assert_int_equal(next >> k, states[t] & ((1u << (L - k)) - 1));
    }
}

/* ---- brute force --------------------------------------------------------- */

enum { BRUTE_L = 8, BRUTE_T = 8, FREE = -1 };

/* The greatest sum over all explicit paths that are in a state at a position. */
struct brute {
    uint32_t k, T;
    const float *x;
    float greatest[BRUTE_T][1 << BRUTE_L];
};

static float emission(float x, uint32_t state)
{
    float value = tcq_code_value(state);
    return fmaf(2.0f * x, value, -(value * value));
}

/* Walks every continuation of a path, one by one. */
static void walk(struct brute *b, uint32_t t, uint32_t state, float sum)
{
    if (!(b->greatest[t][state] >= sum))
        b->greatest[t][state] = sum;
    if (t + 1 == b->T)
        return;
    for (uint32_t symbol = 0; symbol < 1u << b->k; symbol++) {
        uint32_t next = (state << b->k | symbol) & ((1u << BRUTE_L) - 1);
        walk(b, t + 1, next, sum + emission(b->x[t + 1], next));
    }
}

/* The path that the tie rules pick among all best ones. */
static void brute_pass(uint16_t *states, struct brute *b, const float *x, int first)
{
    uint32_t groups = 1u << (BRUTE_L - b->k);
    b->x = x;
    for (uint32_t t = 0; t < b->T; t++)
        for (uint32_t s = 0; s < 1u << BRUTE_L; s++)
            b->greatest[t][s] = -INFINITY;
    for (uint32_t s = 0; s < 1u << BRUTE_L; s++)
        if (first == FREE || s >> b->k == (uint32_t)first)
            walk(b, 0, s, emission(x[0], s));
    int best = -1;
    for (int s = 0; s < 1 << BRUTE_L; s++)
        if ((first == FREE || s % (int)groups == first) &&
            (best < 0 || b->greatest[b->T - 1][s] >= b->greatest[b->T - 1][best]))
            best = s;
    for (uint32_t t = b->T; t-- > 0;) {
        states[t] = (uint16_t)best;
        uint32_t group = (uint32_t)best >> b->k;
        best = (int)group;
        for (uint32_t m = 1; t > 0 && m < 1u << b->k; m++)
            if (b->greatest[t - 1][group + m * groups] >= b->greatest[t - 1][best])
                best = (int)(group + m * groups);
    }
}

static void brute_solve(uint16_t *states, struct brute *b, const float *x)
{
    float rotated[BRUTE_T];
    uint32_t half = b->T / 2;
    for (uint32_t t = 0; t < b->T; t++)
        rotated[t] = x[(t + half) % b->T];
    brute_pass(states, b, rotated, FREE);
    brute_pass(states, b, x, states[b->T - half] >> b->k);
}

/* Random blocks, and blocks whose paths tie: constants, zeros, two values, and
 * targets so large or so small that sums round to the same number. */
static void fill_block(float *x, uint32_t T, int kind, struct random *r)
{
    float level = tcq_code_value(random_below(r, 65536));
    for (uint32_t t = 0; t < T; t++) {
        float normal = random_normal(r), sign = random_below(r, 2) ? 1.0f : -1.0f;
        const float kinds[] = {normal,
                               0.0f,
                               -0.0f,
                               level,
                               0.25f * sign,
                               1e4f * sign,
                               1e-6f * normal,
                               1e4f * normal,
                               1e-42f * sign,
                               t == T / 2 ? 4e4f : 0.0f,
                               tcq_code_value(random_below(r, 65536))};
        x[t] = kinds[(size_t)kind % (sizeof kinds / sizeof *kinds)];
    }
}
enum { BLOCK_KINDS = 11 };

static void brute_force_agrees(void **state)
{
    (void)state;
    static const struct {
        uint32_t k, T;
    } cases[] = {{1, 8}, {2, 4}, {2, 5}, {3, 3}, {3, 4}, {4, 2}, {4, 3}, {5, 2}, {6, 2}};
    struct random r = random_start("brute force", 7);
    struct brute *b = malloc(sizeof *b);
    uint32_t checked = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (const struct tcq_viterbi *const *solver = tcq_viterbi_all; *solver; solver++) {
            if (!runs_here(*solver))
                continue;
            b->k = cases[i].k;
            b->T = cases[i].T;
            struct instance s = instance_open(*solver, b->k, BRUTE_L, b->T);
            for (int kind = 0; kind < 2 * BLOCK_KINDS; kind++, checked++) {
                float x[BRUTE_T];
                uint16_t expected[BRUTE_T], states[BRUTE_T];
                fill_block(x, b->T, kind, &r);
                brute_solve(expected, b, x);
                instance_solve(states, x, 1, &s);
                assert_memory_equal(states, expected, b->T * sizeof *states);
                assert_closed(states, b->k, BRUTE_L, b->T);
            }
            instance_close(&s);
        }
    free(b);
    assert_true(checked > 0);
}

/* ---- solvers against one another ------------------------------------------ */

/* `count` blocks of every kind through the scalar solver and all others. */
static void compare(uint32_t k, uint32_t L, uint32_t T, uint32_t count, struct random *r)
{
    struct instance all[8], *scalar = NULL;
    uint32_t instances = 0;
    for (const struct tcq_viterbi *const *solver = tcq_viterbi_all; *solver; solver++)
        if (runs_here(*solver))
            all[instances++] = instance_open(*solver, k, L, T);
    scalar = &all[instances - 1];
    for (uint32_t first = 0; first < count; first += B_MAX) {
        float x[B_MAX * T_MAX];
        uint16_t expected[B_MAX * T_MAX], states[B_MAX * T_MAX];
        for (uint32_t b = 0; b < B_MAX; b++) {
            /* mostly random, the other kinds in turn */
            int kind = b < 2 ? 0 : (int)((first + b) % BLOCK_KINDS);
            fill_block(x + b * T, T, kind, r);
            instance_solve(expected + b * T, x + b * T, 1, scalar);
            assert_closed(expected + b * T, k, L, T);
        }
        for (uint32_t i = 0; i + 1 < instances; i++) {
            uint32_t most = all[i].solver->blocks(L), step = most - first / B_MAX % most;
            memset(states, 0xff, sizeof states);
            for (uint32_t b = 0; b < B_MAX; b += step)
                instance_solve(states + b * T, x + b * T, b + step > B_MAX ? B_MAX - b : step,
                               &all[i]);
            assert_memory_equal(states, expected, B_MAX * T * sizeof *states);
        }
    }
    for (uint32_t i = 0; i < instances; i++)
        instance_close(&all[i]);
}

static void every_geometry_agrees(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {64, 128, 256};
    struct random r = random_start("every geometry", 8);
    for (uint32_t L = TCQ_L_MIN; L <= TCQ_L_MAX; L++)
        for (uint32_t k = TCQ_K_MIN; k <= TCQ_K_MAX; k++)
            for (int i = 0; i < 3; i++)
                if (effort() == FULL || (i == 0 && (L <= 9 || (L + k) % 7 == 0)) ||
                    (effort() == NORMAL && L <= 12 && (L <= 9 || i == (int)(L + k) % 3)))
                    compare(k, L, lengths[i], L <= 9 ? 2 * BLOCK_KINDS : 2, &r);
}

static void many_blocks_agree(void **state)
{
    (void)state;
    /* Mostly short trellises: a million blocks of plain C take hours at L = 12. */
    if (effort() == QUICK)
        return;
    uint32_t scale = effort() == FULL ? 1000 : 1;
    struct random r = random_start("many blocks", 9);
    compare(3, 12, 256, scale > 1 ? 10000 : 40, &r);
    for (uint32_t k = TCQ_K_MIN; k <= TCQ_K_MAX; k++) {
        compare(k, 8, 64, 120 * scale, &r);
        compare(k, 9, 64, 46 * scale, &r);
    }
}

/* ---- the error on Gaussian weights ---------------------------------------- */

static double gaussian_mse(uint32_t k, uint32_t L, struct random *r)
{
    enum { BLOCKS = 240 };
    static float x[BLOCKS * T_MAX];
    static uint16_t states[BLOCKS * T_MAX];
    double power = 0.0, error = 0.0;
    for (int i = 0; i < BLOCKS * T_MAX; i++) {
        x[i] = random_normal(r);
        power += (double)x[i] * (double)x[i];
    }
    double scale = sqrt(power / (BLOCKS * T_MAX)) / tcq_code_rms(L);
    for (int i = 0; i < BLOCKS * T_MAX; i++)
        x[i] = (float)((double)x[i] / scale);
    struct instance s = instance_open(tcq_viterbi_select(tcq_cpu_detect()), k, L, T_MAX);
    for (uint32_t b = 0; b < BLOCKS; b += s.solver->blocks(L))
        instance_solve(states + b * T_MAX, x + b * T_MAX, s.solver->blocks(L), &s);
    instance_close(&s);
    for (int i = 0; i < BLOCKS * T_MAX; i++) {
        double difference = (double)x[i] - (double)tcq_code_value(states[i]);
        error += difference * difference;
    }
    return error * scale * scale / power;
}

static void gaussian_error_is_as_known(void **state)
{
    (void)state;
    /* Measured on 10^6 weights in rows of 4096 (docs/encoder.md). */
    static const double expected[] = {0.2854, 0.0747, 0.0198, 0.00549, 0.00178, 0.000709};
    /* Weights beyond the table's end (3.07) dominate from k = 5 on, and are few. */
    static const double tolerance[] = {0.03, 0.03, 0.03, 0.03, 0.15, 0.15};
    /* Lloyd and Max's scalar quantizer of 2^k levels: worse where the table's end is not felt. */
    static const double scalar[] = {0.3634, 0.1175, 0.03454, 0.009497, 0.002499, 1.0};
    struct random r = random_start("gaussian", 10);
    for (uint32_t k = TCQ_K_MIN; k <= TCQ_K_MAX && effort() > QUICK; k++) {
        double mse = gaussian_mse(k, 12, &r), bound = ldexp(1.0, -2 * (int)k);
        print_message("k = %u, L = 12: relative mse %.6f, %.3f of the bound\n", k, mse,
                      mse / bound);
        assert_true(mse > bound);
        assert_true(mse < scalar[k - 1]);
        assert_true(fabs(mse / expected[k - 1] - 1.0) < tolerance[k - 1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brute_force_agrees),
        cmocka_unit_test(every_geometry_agrees),
        cmocka_unit_test(many_blocks_agree),
        cmocka_unit_test(gaussian_error_is_as_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
