/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tcq without CUDA: its contexts refuse the GPU before any of this is asked for.
 */
#include "base/error.h"
#include "bench_gpu.h"

static enum tcq_status refuse(struct tcq_error *error)
{
    return tcq_error_set(error, TCQ_ERROR_UNSUPPORTED,
                         "this program was built without the CUDA back end");
}

int bench_gpu_open(struct bench *bench, size_t count, size_t expanded)
{
    struct tcq_error error;
    (void)bench, (void)count, (void)expanded;
    refuse(&error);
    return cli_fail(NULL, &error);
}

void bench_gpu_close(struct bench *bench)
{
    (void)bench;
}

const char *bench_gpu_name(const struct bench *bench)
{
    (void)bench;
    return "none";
}

enum tcq_status bench_gpu_fetch(const struct bench *bench, size_t nbytes, struct tcq_error *error)
{
    (void)bench, (void)nbytes;
    return refuse(error);
}

struct bench_limits bench_gpu_limits(struct bench *bench)
{
    (void)bench;
    return (struct bench_limits){0};
}

enum tcq_status bench_gpu_rounds(struct bench *bench, struct bench_layers *layers,
                                 const struct bench_case *which, bool ratios,
                                 struct bench_result *out, struct tcq_error *error)
{
    (void)bench, (void)layers, (void)which, (void)ratios, (void)out;
    return refuse(error);
}
