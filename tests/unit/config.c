/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json: what is read from it, what is refused and in which words, and
 * what is written: the source's text kept as it is but for the two sections.
 */
#include "support/failing.h"

#define MODULE(bits, group, L, code, axis)                                                   \
    "{\"bits\":" bits ",\"group_size\":" group ",\"mode\":\"trellis\",\"trellis\":{\"L\":" L \
    ",\"code\":" code ",\"axis\":" axis "}}"
#define GOOD MODULE("3", "256", "12", "\"1mad\"", "1")
#define SECTION(entries) \
    "{\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":\"affine\"," entries "}}"

static struct tcq_config *parse_good(const char *text)
{
    struct tcq_config *config = NULL;
    struct tcq_error error = {0};
    if (tcq_config_parse(text, strlen(text), &config, &error) != TCQ_OK)
        fail_msg("%s", error.message);
    return config;
}

static void modules_are_read(void **state)
{
    (void)state;
    struct tcq_module_config m;
    struct tcq_config *config = parse_good(SECTION("\"m.up\":" GOOD ",\"m.down\":" MODULE(
        "2", "64", "16", "\"1mad\"",
        "0") ","
             "\"head\":false,\"other\":{\"bits\":8,\"group_size\":32},"
             "\"mx\":{\"mode\":\"mxfp4\",\"bits\":4},\"note\":[1,2],\"extra\":null"));
    assert_int_equal(tcq_config_module_count(config), 2);
    assert_string_equal(tcq_config_module_name(config, 0), "m.down");
    assert_string_equal(tcq_config_module_name(config, 1), "m.up");
    assert_null(tcq_config_module_name(config, 2));
    assert_true(tcq_config_find(config, "m.up", &m));
    assert_true(m.k == 3 && m.T == 256 && m.L == 12 && m.axis == 1);
    assert_true(tcq_config_find(config, "m.down", &m));
    assert_true(m.k == 2 && m.T == 64 && m.L == 16 && m.axis == 0);
    assert_false(tcq_config_find(config, "head", &m));
    assert_false(tcq_config_find(config, "other", &m));
    assert_false(tcq_config_find(config, "m", &m));
    tcq_config_destroy(config);
    tcq_config_destroy(NULL);
}

static void either_section_will_do(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"quantization\":{\"m\":" GOOD "}}",
        "{\"quantization_config\":{\"m\":" GOOD "}}",
        "{\"quantization\":null,\"quantization_config\":{\"m\":" GOOD "}}",
        "{\"quantization\":{\"m\":" GOOD "},\"quantization_config\":{\"m\":" GOOD "}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct tcq_config *config = parse_good(texts[i]);
        assert_int_equal(tcq_config_module_count(config), 1);
        tcq_config_destroy(config);
    }
}

static void a_config_without_packed_modules(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "{\"model_type\":\"llama\",\"max_position\":1000000000000000019884624838656}",
        "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"damp\":0.01}}",
        "{\"quantization\":{\"group_size\":64,\"bits\":4}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct tcq_config *config = parse_good(texts[i]);
        struct tcq_module_config m;
        assert_int_equal(tcq_config_module_count(config), 0);
        assert_false(tcq_config_find(config, "m", &m));
        tcq_config_destroy(config);
    }
}

static void every_refusal_has_its_message(void **state)
{
    (void)state;
    static const char start[] = "config.json: quantization: module 'm': ";
    static const struct {
        const char *text;
        enum tcq_status status;
        const char *message; /* after `start` where the text is one of a module */
    } refusals[] = {
        {SECTION("\"m\":" MODULE("3", "256", "12", "\"hyb\"", "1")), TCQ_ERROR_UNSUPPORTED,
         "code 'hyb' is unknown: expected 1mad"},
        {SECTION("\"m\":" MODULE("3", "256", "12", "7", "1")), TCQ_ERROR_FORMAT,
         "'code' is missing or not a string"},
        {SECTION("\"m\":" MODULE("7", "256", "12", "\"1mad\"", "1")), TCQ_ERROR_GEOMETRY,
         "k = 7 bits a weight: expected 1..6"},
        {SECTION("\"m\":" MODULE("0", "256", "12", "\"1mad\"", "1")), TCQ_ERROR_GEOMETRY,
         "k = 0 bits a weight: expected 1..6"},
        {SECTION("\"m\":" MODULE("3", "32", "12", "\"1mad\"", "1")), TCQ_ERROR_GEOMETRY,
         "block of T = 32 weights: expected 64, 128 or 256"},
        {SECTION("\"m\":" MODULE("3", "256", "7", "\"1mad\"", "1")), TCQ_ERROR_GEOMETRY,
         "L = 7: expected 8..16"},
        {SECTION("\"m\":" MODULE("3", "256", "12", "\"1mad\"", "2")), TCQ_ERROR_GEOMETRY,
         "axis = 2: expected 0 or 1"},
        {SECTION("\"m\":" MODULE("3.5", "256", "12", "\"1mad\"", "1")), TCQ_ERROR_FORMAT,
         "'bits' is not a whole number from 0"},
        {SECTION("\"m\":" MODULE("\"3\"", "256", "12", "\"1mad\"", "1")), TCQ_ERROR_FORMAT,
         "'bits' is not a whole number from 0"},
        {SECTION("\"m\":" MODULE("-3", "256", "12", "\"1mad\"", "1")), TCQ_ERROR_FORMAT,
         "'bits' is not a whole number from 0"},
        {SECTION("\"m\":" MODULE("3", "1e300", "12", "\"1mad\"", "1")), TCQ_ERROR_FORMAT,
         "'group_size' is not a whole number from 0"},
        {SECTION("\"m\":" MODULE("3", "256", "null", "\"1mad\"", "1")), TCQ_ERROR_FORMAT,
         "'L' is not a whole number from 0"},
        {SECTION("\"m\":{\"bits\":3,\"group_size\":256,\"mode\":\"trellis\"}"), TCQ_ERROR_FORMAT,
         "mode is trellis, but 'trellis' is missing or not an object"},
        {SECTION("\"m\":{\"bits\":3,\"mode\":\"trellis\",\"trellis\":{\"code\":\"1mad\"}}"),
         TCQ_ERROR_FORMAT, "no 'group_size'"},
        {SECTION("\"m\":{\"bits\":3,\"group_size\":256,\"trellis\":{}}"), TCQ_ERROR_FORMAT,
         "has 'trellis', but its mode is not trellis"},
        {SECTION("\"m\":{\"mode\":\"nf4\"}"), TCQ_ERROR_UNSUPPORTED, "mode 'nf4' is unknown"},
        {SECTION("\"m\":{\"mode\":4}"), TCQ_ERROR_FORMAT, "mode is not a string"},
        {"{\"quantization\":{\"mode\":\"nf4\"}}", TCQ_ERROR_UNSUPPORTED,
         "config.json: quantization: mode 'nf4' is unknown"},
        {"{\"quantization\":{\"mode\":\"trellis\"}}", TCQ_ERROR_UNSUPPORTED,
         "config.json: quantization: mode trellis as the default: expected an entry for each "
         "module"},
        {"{\"quantization\":[]}", TCQ_ERROR_FORMAT, "config.json: quantization is not an object"},
        {"{\"quantization\":{\"m\":" GOOD "},\"quantization_config\":{\"m\":false}}",
         TCQ_ERROR_FORMAT, "config.json: quantization and quantization_config differ"},
        {SECTION("\"m\":false,\"m\":" GOOD), TCQ_ERROR_FORMAT,
         "config.json: JSON: duplicate object key near '\"m\"' (line 1, column 71)"},
        {"[]", TCQ_ERROR_FORMAT, "config.json: JSON: expected an object"},
        {"", TCQ_ERROR_FORMAT, "config.json: JSON: empty"},
        {"{\"a\":NaN}", TCQ_ERROR_FORMAT, NULL},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct tcq_config *config = NULL;
        struct tcq_error error = {0};
        print_message("%s\n", refusals[i].text);
        assert_int_equal(
            tcq_config_parse(refusals[i].text, strlen(refusals[i].text), &config, &error),
            refusals[i].status);
        assert_null(config);
        const char *shown = error.message, *expected = refusals[i].message;
        if (expected && strncmp(expected, "config.json", 11) != 0) {
            assert_int_equal(strncmp(shown, start, sizeof start - 1), 0);
            shown += sizeof start - 1;
        }
        if (expected)
            assert_string_equal(shown, expected);
    }
}

/* ---- writing ----------------------------------------------------------- */

static const struct tcq_module_entry modules[] = {
    {"m.up", true, {.k = 3, .L = 12, .T = 256, .axis = 1}},
    {"m.down", true, {.k = 4, .L = 16, .T = 64, .axis = 0}},
    {"head", false, {0}},
};
enum { MODULES_COUNT = sizeof modules / sizeof *modules };

#define OUR_ENTRIES(indent)                                                        \
    indent "\"m.up\": {\"bits\": 3, \"group_size\": 256, \"mode\": \"trellis\", "  \
           "\"trellis\": {\"L\": 12, \"code\": \"1mad\", \"axis\": 1}},\n" indent  \
           "\"m.down\": {\"bits\": 4, \"group_size\": 64, \"mode\": \"trellis\", " \
           "\"trellis\": {\"L\": 16, \"code\": \"1mad\", \"axis\": 0}},\n" indent  \
           "\"head\": false\n"

static char *write_good(const char *source)
{
    char *text = NULL;
    struct tcq_error error = {0};
    if (tcq_config_write(source, modules, MODULES_COUNT, &text, &error) != TCQ_OK)
        fail_msg("%s", error.message);
    struct tcq_module_config m;
    struct tcq_config *config = parse_good(text); /* what is written is read */
    assert_int_equal(tcq_config_module_count(config), 2);
    assert_true(tcq_config_find(config, "m.down", &m));
    assert_true(m.k == 4 && m.L == 16 && m.T == 64 && m.axis == 0);
    tcq_config_destroy(config);
    return text;
}

static void a_config_from_nothing(void **state)
{
    (void)state;
    static const char expected[] =
        "{\n"
        "  \"quantization\": {\n"
        "    \"group_size\": 64,\n"
        "    \"bits\": 4,\n"
        "    \"mode\": \"affine\",\n" OUR_ENTRIES("    ") "  },\n"
                                                          "  \"quantization_config\": {\n"
                                                          "    \"group_size\": 64,\n"
                                                          "    \"bits\": 4,\n"
                                                          "    \"mode\": \"affine\",\n" OUR_ENTRIES(
                                                              "    ") "  }\n"
                                                                      "}\n";
    char *text = write_good(NULL);
    assert_string_equal(text, expected);
    free(text);
    text = write_good(" { } ");
    assert_string_equal(text, expected);
    free(text);
}

static void other_keys_stay_as_they_are(void **state)
{
    (void)state;
    static const char source[] =
        "{\n"
        "    \"z\": 1e-05, \"big\": 1000000000000000019884624838656,\n"
        "    \"nested\": {\"a]}\\\"\": [1.10, {\"b\": \"}\"}],\n        \"c\": {}},\n"
        "    \"quantization\" : {\"bits\": 8, \"group_size\": 32,\n"
        "        \"embed\": {\"bits\": 6, \"group_size\": 64}, \"m.up\": {\"bits\": 2}},\n"
        "    \"caf\\u00e9\": \"\\u00e9, ]} \\\" b\",\n"
        "    \"last\": null\n"
        "}";
#define SECTION_HERE                  \
    "        \"group_size\": 32,\n"   \
    "        \"bits\": 8,\n"          \
    "        \"mode\": \"affine\",\n" \
    "        \"embed\": {\"bits\": 6, \"group_size\": 64},\n" OUR_ENTRIES("        ") "    }"
    static const char expected[] =
        "{\n"
        "    \"z\": 1e-05,\n    \"big\": 1000000000000000019884624838656,\n"
        "    \"nested\": {\"a]}\\\"\": [1.10, {\"b\": \"}\"}],\n        \"c\": {}},\n"
        "    \"quantization\": {\n" SECTION_HERE ",\n"
        "    \"caf\\u00e9\": \"\\u00e9, ]} \\\" b\",\n"
        "    \"last\": null,\n"
        "    \"quantization_config\": {\n" SECTION_HERE "\n"
        "}\n";
    char *text = write_good(source);
    assert_string_equal(text, expected);
    char *again = write_good(text); /* and writing it once more changes nothing */
    assert_string_equal(again, text);
    free(again);
    free(text);
}

static void another_method_s_section_goes(void **state)
{
    (void)state;
    char *text =
        write_good("{\"quantization_config\":{\"quant_method\":\"fp8\",\"bits\":8},\"a\":1}");
    assert_null(strstr(text, "fp8"));
    assert_null(strstr(text, "quant_method"));
    assert_non_null(strstr(text, "\"bits\": 4,"));
    assert_non_null(strstr(text, "\"a\": 1"));
    assert_true(strstr(text, "\"quantization_config\"") < strstr(text, "\"a\"")); /* in its place */
    free(text);
}

static void what_cannot_be_written(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        struct tcq_module_entry modules[2];
        enum tcq_status status;
        const char *message;
    } refusals[] = {
        {"{}",
         {{"a", false, {0}}, {"a", false, {0}}},
         TCQ_ERROR_ARGUMENT,
         "config: module 'a' is there twice"},
        {"{}",
         {{"bits", false, {0}}, {"a", false, {0}}},
         TCQ_ERROR_ARGUMENT,
         "config: 'bits' is not a module's path"},
        {"{}",
         {{"", false, {0}}, {"a", false, {0}}},
         TCQ_ERROR_ARGUMENT,
         "config: '' is not a module's path"},
        {"{}",
         {{"\xff", false, {0}}, {"a", false, {0}}},
         TCQ_ERROR_ARGUMENT,
         "a module's path is not UTF-8"},
        {"{}",
         {{"a", true, {.k = 9, .L = 12, .T = 64}}, {"b", false, {0}}},
         TCQ_ERROR_GEOMETRY,
         "module 'a': k = 9 bits a weight: expected 1..6"},
        {"{", {{"a", false, {0}}, {"b", false, {0}}}, TCQ_ERROR_FORMAT, NULL},
        {"{\"quantization\":1}",
         {{"a", false, {0}}, {"b", false, {0}}},
         TCQ_ERROR_FORMAT,
         "config.json: quantization is not an object"},
        {"{\"quantization\":{\"bits\":2},\"quantization_config\":{\"bits\":3}}",
         {{"a", false, {0}}, {"b", false, {0}}},
         TCQ_ERROR_FORMAT,
         "config.json: quantization and quantization_config differ"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        char *text = NULL;
        struct tcq_error error = {0};
        assert_int_equal(
            tcq_config_write(refusals[i].source, refusals[i].modules, 2, &text, &error),
            refusals[i].status);
        assert_null(text);
        if (refusals[i].message)
            assert_string_equal(error.message, refusals[i].message);
    }
}

static void missing_arguments(void **state)
{
    (void)state;
    struct tcq_config *config = NULL;
    char *text = NULL;
    assert_int_equal(tcq_config_parse(NULL, 0, &config, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_config_parse("{}", 2, NULL, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_config_write("{}", NULL, 1, &text, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_config_write("{}", NULL, 0, NULL, NULL), TCQ_ERROR_ARGUMENT);
    assert_int_equal(tcq_config_write("{}", NULL, 0, &text, NULL), TCQ_OK); /* no modules: fine */
    free(text);
}

static enum tcq_status parse_once(void *argument, struct tcq_error *error)
{
    struct tcq_config *config = NULL;
    enum tcq_status status = tcq_config_parse(argument, strlen(argument), &config, error);
    if (status == TCQ_OK)
        tcq_config_destroy(config);
    return status;
}

static enum tcq_status write_once(void *argument, struct tcq_error *error)
{
    char *text = NULL;
    enum tcq_status status = tcq_config_write(argument, modules, MODULES_COUNT, &text, error);
    free(text);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char text[] = SECTION("\"m\":" GOOD ",\"b\":" GOOD ",\"c\":{\"bits\":2}");
    failing_walk(parse_once, text);
    failing_walk_json(write_once, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_are_read),
        cmocka_unit_test(either_section_will_do),
        cmocka_unit_test(a_config_without_packed_modules),
        cmocka_unit_test(every_refusal_has_its_message),
        cmocka_unit_test(a_config_from_nothing),
        cmocka_unit_test(other_keys_stay_as_they_are),
        cmocka_unit_test(another_method_s_section_goes),
        cmocka_unit_test(what_cannot_be_written),
        cmocka_unit_test(missing_arguments),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
