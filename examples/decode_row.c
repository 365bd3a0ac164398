/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a folder that `tcq quantize` wrote and prints the start of one row of
 * one packed module:  decode_row DIR MODULE ROW
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcq.h"

static int print_row(const struct tcq_tensor *tensor, uint64_t row)
{
    uint64_t cols = tensor->geometry.cols; /* of the stored matrix: see axis in tcq.h */
    float *values = malloc(cols * sizeof *values);
    if (!values || tcq_decode_row(values, TCQ_DTYPE_F32, tensor, row) != TCQ_OK) {
        fprintf(stderr, "decode_row: there is no row %llu\n", (unsigned long long)row);
        free(values);
        return 1;
    }
    printf("row %llu of %llu x %llu:", (unsigned long long)row,
           (unsigned long long)tensor->geometry.rows, (unsigned long long)cols);
    for (uint64_t i = 0; i < cols && i < 8; i++)
        printf(" %.6f", (double)values[i]);
    puts(" ...");
    free(values);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: decode_row DIR MODULE ROW\n", stderr);
        return 2;
    }
    struct tcq_source *source = NULL;
    struct tcq_config *config = NULL;
    struct tcq_tensor tensor;
    struct tcq_error error = {0};
    int code = 1;
    const char *text = NULL;
    if (tcq_source_open(argv[1], &source, &error) == TCQ_OK &&
        (text = tcq_source_config(source)) != NULL &&
        tcq_config_parse(text, strlen(text), &config, &error) == TCQ_OK &&
        tcq_source_packed(source, config, argv[2], &tensor, &error) == TCQ_OK)
        code = print_row(&tensor, strtoull(argv[3], NULL, 10));
    else
        fprintf(stderr, "decode_row: %s\n", error.status ? error.message : "no config.json");
    tcq_config_destroy(config);
    tcq_source_close(source);
    return code;
}
