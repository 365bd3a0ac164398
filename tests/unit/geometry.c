/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry: 10,000 random ones against the rules written a second time, and
 * the two layouts against the formula of docs/format.md.
 */
#include "support/test.h"

#include "tcq.h"

static const uint32_t block_lengths[] = {0, 1, 32, 64, 96, 128, 192, 256, 512};

static struct tcq_geometry random_geometry(struct random *r)
{
    return (struct tcq_geometry){
        .k = random_below(r, 9),
        .L = 6 + random_below(r, 13),
        .T = block_lengths[random_below(r, 9)],
        .axis = random_below(r, 3),
        .layout = (enum tcq_layout)(random_below(r, 8) == 0 ? 2 : random_below(r, 2)),
        .rows = random_below(r, 20) == 0 ? UINT64_MAX / (1 + random_below(r, 9))
                                         : random_below(r, 40),
        .cols = random_below(r, 10) == 0 ? random_u64(r) : 64u * random_below(r, 40),
    };
}

static bool expected_valid(const struct tcq_geometry *g)
{
    if (g->k < 1 || g->k > 6 || g->L < 8 || g->L > 16 || g->axis > 1 || g->layout > 1)
        return false;
    if (!(g->T == 64 || g->T == 128 || g->T == 256) || !g->rows || !g->cols || g->cols % g->T)
        return false;
    if ((long double)g->rows * (long double)g->cols * 4.0L > 0x7fffffffffffffff.0p0L)
        return false;
    return g->layout == 0 ||
           (g->axis == 0 && g->k == 3 && g->T == 256 && g->L == 12 && g->cols % 512 == 0);
}

static void random_geometries_follow_the_rules(void **state)
{
    (void)state;
    struct random r = random_start("geometry", 2);
    int valid = 0;
    for (int i = 0; i < 10000; i++) {
        struct tcq_geometry g = random_geometry(&r);
        if (i % 4 == 0) /* enough that are valid */
            g = (struct tcq_geometry){3, 12, 256, random_below(&r, 2), TCQ_LAYOUT_ROW_MAJOR,
                                      1 + random_below(&r, 9), 256u * (1 + random_below(&r, 9))};
        struct tcq_error error = {0};
        enum tcq_status status = tcq_geometry_check(&g, &error);
        assert_int_equal(status, expected_valid(&g) ? TCQ_OK : TCQ_ERROR_GEOMETRY);
        assert_true((status == TCQ_OK) == (error.message[0] == 0));
        valid += status == TCQ_OK;
        if (status == TCQ_OK) {
            assert_int_equal(tcq_geometry_words(&g) * 32, g.rows * g.cols * g.k);
            assert_int_equal(tcq_geometry_in(&g) * tcq_geometry_out(&g), g.rows * g.cols);
        }
    }
    assert_in_range(valid, 2500, 9999);
}

static void block_offsets_follow_the_formula(void **state)
{
    (void)state;
    struct tcq_geometry g = {3, 12, 256, 0, TCQ_LAYOUT_ROW_MAJOR, 5, 1536};
    for (uint64_t row = 0; row < g.rows; row++)
        for (uint64_t b = 0; b < g.cols / g.T; b++) {
            g.layout = TCQ_LAYOUT_ROW_MAJOR;
            assert_int_equal(tcq_geometry_block_offset(&g, row, b), row * 144 + b * 24);
            g.layout = TCQ_LAYOUT_INTERLEAVED;
            assert_int_equal(tcq_geometry_block_offset(&g, row, b),
                             (b >> 1) * g.rows * 48 + row * 48 + (b & 1) * 24);
        }
}

static void refusals_name_what_was_given(void **state)
{
    (void)state;
    const struct tcq_geometry good = {3, 12, 256, 0, TCQ_LAYOUT_INTERLEAVED, 4, 512};
    struct tcq_error error;
    assert_int_equal(tcq_geometry_check(&good, &error), TCQ_OK);
    struct {
        struct tcq_geometry geometry;
        const char *part;
    } cases[] = {
        {{7, 12, 256, 0, 0, 4, 512}, "k = 7"},    {{3, 7, 256, 0, 0, 4, 512}, "L = 7"},
        {{3, 12, 96, 0, 0, 4, 512}, "T = 96"},    {{3, 12, 256, 2, 0, 4, 512}, "axis = 2"},
        {{3, 12, 256, 0, 0, 0, 512}, "0 x 512"},  {{3, 12, 256, 0, 0, 4, 500}, "500 cols"},
        {{3, 12, 256, 0, 1, 4, 256}, "256 cols"}, {{3, 12, 256, 1, 1, 4, 512}, "axis 1"},
        {{3, 12, 256, 0, 0, 1ull << 62, 512}, "overflows"},
        {{3, 12, 256, 0, (enum tcq_layout)5, 4, 512}, "layout 5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tcq_geometry_check(&cases[i].geometry, &error), TCQ_ERROR_GEOMETRY);
        assert_non_null(strstr(error.message, cases[i].part));
    }
    assert_int_equal(tcq_geometry_check(NULL, &error), TCQ_ERROR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_geometries_follow_the_rules),
        cmocka_unit_test(block_offsets_follow_the_formula),
        cmocka_unit_test(refusals_name_what_was_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
