/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products against the golden vectors: y in float64 from exact and from bf16
 * weights, and mid of gate/up, for every operation that serves the geometry, on
 * every set of CPU features that this machine can imitate.
 */
#include "support/golden.h"

#include "base/half.h"

static struct tcq_context *context;

static void run_with(uint32_t cpu_flags, const char *prefix, void (*check)(const struct golden *))
{
    struct tcq_context_options options = {
        .threads = 2, .limit_cpu = true, .cpu_flags = cpu_flags};
    assert_int_equal(tcq_context_create(&options, &context, NULL), TCQ_OK);
    golden_run(prefix, check);
    tcq_context_destroy(context);
}

/* Calls test for plain C and for each set of features below all of them. */
static void for_each_cpu(const char *prefix, void (*check)(const struct golden *))
{
    static const uint32_t sets[] = {
        0,
        TCQ_CPU_AVX2,
        TCQ_CPU_AVX2 | TCQ_CPU_AVX512,
        TCQ_CPU_AVX2 | TCQ_CPU_AVX512 | TCQ_CPU_AVX512_VBMI | TCQ_CPU_AVX512_VNNI,
        TCQ_CPU_NEON,
    };
    uint32_t detected = tcq_cpu_detect();
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (sets[i] & ~detected)
            print_message("cpu flags %#x: NOT RUN on this processor\n", sets[i]);
        else
            run_with(sets[i], prefix, check);
    }
    run_with(detected, prefix, check);
}

/* sum |w x| of output o for vector i, from the golden dense weights. */
static double magnitude(const struct tcq_geometry *g, const float *weights, const uint16_t *x,
                        uint64_t i, uint64_t o)
{
    uint64_t in = tcq_geometry_in(g);
    double sum = 0;
    for (uint64_t j = 0; j < in; j++) {
        double w = (double)weights[g->axis ? o * g->cols + j : j * g->cols + o];
        sum += fabs(w * (double)tcq_bf16_to_f32(x[i * in + j]));
    }
    return sum;
}

static void check_operation(const struct golden *golden, enum tcq_numerics numerics,
                            enum tcq_operation operation, uint64_t m_max, const char *expected)
{
    struct tcq_tensor tensor =
        golden_packed(golden, "layer.weight", "layer.scales", golden->k, golden->axis);
    const struct tcq_geometry *g = &tensor.geometry;
    struct tcq_linear_options options = {.numerics = numerics, .operation = operation};
    struct tcq_linear *linear = NULL;
    struct tcq_error error;
    enum tcq_status status = tcq_linear_create(context, &tensor, &options, &linear, &error);
    if (status == TCQ_ERROR_UNSUPPORTED) /* another axis, or a special form */
        return;
    assert_int_equal(status, TCQ_OK);
    uint64_t shape[2], in = tcq_geometry_in(g), out = tcq_geometry_out(g);
    const uint16_t *x = golden_data(golden, "x", TCQ_DTYPE_BF16, 2, shape);
    const double *y64 = golden_data(golden, expected, TCQ_DTYPE_F64, 2, NULL);
    const float *weights = golden_data(golden, "expand_f32", TCQ_DTYPE_F32, 2, NULL);
    uint64_t m = shape[0] < m_max ? shape[0] : m_max;
    float *y = calloc(m * out, sizeof *y);
    struct tcq_vectors xv = {(void *)(uintptr_t)x, TCQ_DTYPE_BF16, in};
    struct tcq_vectors yv = {y, TCQ_DTYPE_F32, out};
    assert_int_equal(tcq_linear_forward(linear, m, &yv, &xv, NULL, NULL), TCQ_OK);
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t o = 0; o < out; o++) {
            double bound = (double)in * 0x1p-24 * magnitude(g, weights, x, i, o);
            double got = (double)y[i * out + o], wanted = y64[i * out + o];
            if (!(fabs(got - wanted) <= bound))
                fail_msg("%s, %s, y[%d][%d] = %.9g: expected %.9g within %.3g", golden->name,
                         tcq_linear_kernel(linear, m), (int)i, (int)o, got, wanted, bound);
        }
    free(y);
    tcq_linear_destroy(linear);
}

static void check_products(const struct golden *golden)
{
    static const enum tcq_operation f32[] = {TCQ_OPERATION_REDUCE, TCQ_OPERATION_SCATTER,
                                             TCQ_OPERATION_SCATTER_BALANCED,
                                             TCQ_OPERATION_SCATTER_TABLE};
    static const enum tcq_operation bf16[] = {TCQ_OPERATION_TILED, TCQ_OPERATION_SPLIT_K,
                                              TCQ_OPERATION_WIDE};
    check_operation(golden, TCQ_NUMERICS_FAST, TCQ_OPERATION_AUTO, 32, "y_f64");
    check_operation(golden, TCQ_NUMERICS_FAST, TCQ_OPERATION_AUTO, 1, "y_f64");
    check_operation(golden, TCQ_NUMERICS_FAST, TCQ_OPERATION_WIDE, 32, "y_bf16weights_f64");
    for (size_t i = 0; i < sizeof f32 / sizeof *f32; i++)
        check_operation(golden, TCQ_NUMERICS_REFERENCE, f32[i], 4, "y_f64");
    for (size_t i = 0; i < sizeof bf16 / sizeof *bf16; i++)
        check_operation(golden, TCQ_NUMERICS_REFERENCE, bf16[i], 32, "y_bf16weights_f64");
}

static void products_keep_their_bound(void **state)
{
    (void)state;
    for_each_cpu("encoded_", check_products);
}

static double to_bf16(double x)
{
    return (double)tcq_bf16_to_f32(tcq_bf16_from_f32((float)x));
}

/* The values of bf16 that a sum within `slack` of `sum` may round to. */
static int candidates(double out[3], double sum, double slack)
{
    out[0] = to_bf16(sum);
    out[1] = to_bf16(sum - slack);
    out[2] = to_bf16(sum + slack);
    return 3;
}

/* Whether `mid` follows from gate and up by the roundings of gate/up, each sum
 * and the sigmoid possibly one bf16 step off where it is next to a boundary. */
static bool follows(double mid, double gate, double gate_slack, double up, double up_slack)
{
    double g[3], u[3], s[3];
    candidates(g, gate, gate_slack);
    candidates(u, up, up_slack);
    for (int a = 0; a < 3; a++) {
        double sigmoid = 1.0 / (1.0 + exp(-g[a]));
        candidates(s, sigmoid, sigmoid * 0x1p-22);
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 3; c++)
                if (to_bf16(to_bf16(g[a] * s[b]) * u[c]) == mid)
                    return true;
    }
    return false;
}

/* in * 2^-24 * sum |w x| for output o of vector i. */
static double sum_slack(const struct tcq_tensor *tensor, const uint16_t *x, uint64_t i, uint64_t o)
{
    const struct tcq_geometry *g = &tensor->geometry;
    float *row = calloc(g->cols, sizeof *row);
    assert_int_equal(tcq_decode_row(row, TCQ_DTYPE_F32, tensor, o), TCQ_OK);
    double sum = 0;
    for (uint64_t j = 0; j < g->cols; j++)
        sum += fabs((double)row[j] * (double)tcq_bf16_to_f32(x[i * g->cols + j]));
    free(row);
    return (double)g->cols * 0x1p-24 * sum;
}

static void check_mid(const struct golden *golden, enum tcq_numerics numerics, enum tcq_swiglu tail)
{
    struct tcq_tensor gate = golden_packed(golden, "gate.weight", "gate.scales", golden->k_gate, 1);
    struct tcq_tensor up = golden_packed(golden, "up.weight", "up.scales", golden->k_up, 1);
    uint64_t shape[2], out = gate.geometry.rows;
    const uint16_t *x = golden_data(golden, "x", TCQ_DTYPE_BF16, 2, shape);
    const uint16_t *expected = golden_data(golden, "mid_bf16", TCQ_DTYPE_BF16, 2, NULL);
    const double *gate64 = golden_data(golden, "gate_f64", TCQ_DTYPE_F64, 2, NULL);
    const double *up64 = golden_data(golden, "up_f64", TCQ_DTYPE_F64, 2, NULL);
    struct tcq_linear_options options = {.numerics = numerics};
    struct tcq_linear *gate_layer, *up_layer;
    assert_int_equal(tcq_linear_create(context, &gate, &options, &gate_layer, NULL), TCQ_OK);
    assert_int_equal(tcq_linear_create(context, &up, &options, &up_layer, NULL), TCQ_OK);
    uint64_t m = shape[0], same = 0;
    uint16_t *mid = calloc(m * out, sizeof *mid);
    struct tcq_vectors xv = {(void *)(uintptr_t)x, TCQ_DTYPE_BF16, shape[1]};
    struct tcq_vectors mv = {mid, TCQ_DTYPE_BF16, out};
    assert_int_equal(tcq_gate_up_forward(gate_layer, up_layer, m, &mv, &xv, tail, NULL), TCQ_OK);
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t o = 0; o < out; o++) {
            uint64_t at = i * out + o;
            double got = (double)tcq_bf16_to_f32(mid[at]);
            same += mid[at] == expected[at];
            if (!follows(got, gate64[at], sum_slack(&gate, x, i, o), up64[at],
                         sum_slack(&up, x, i, o)))
                fail_msg("%s: mid[%d][%d] = %.9g does not follow from gate %.9g and up %.9g",
                         golden->name, (int)i, (int)o, got, gate64[at], up64[at]);
        }
    print_message("%s: %d of %d as in the vector, the others a rounding apart\n", golden->name,
                  (int)same, (int)(m * out));
    assert_true(same * 10 >= m * out * 9);
    free(mid);
    tcq_linear_destroy(gate_layer);
    tcq_linear_destroy(up_layer);
}

static void check_gate_up(const struct golden *golden)
{
    check_mid(golden, TCQ_NUMERICS_FAST, TCQ_SWIGLU_FUSED);
    check_mid(golden, TCQ_NUMERICS_REFERENCE, TCQ_SWIGLU_FUSED);
    /* the sigmoid of `split` equals that of `fused` but for its own rounding */
    check_mid(golden, TCQ_NUMERICS_REFERENCE, TCQ_SWIGLU_SPLIT);
}

static void mid_follows_from_gate_and_up(void **state)
{
    (void)state;
    for_each_cpu("gateup_", check_gate_up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_keep_their_bound),
        cmocka_unit_test(mid_follows_from_gate_and_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
