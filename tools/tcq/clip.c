/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of what the code does not reach.
 */
#include "clip.h"

#include <math.h>

#include "base/half.h"
#include "cli.h"
#include "encode/scale_fit.h"

/* Large: 0.1 % of the energy more than five times what normal weights lose. */
static const double large_share = 1e-3, large_ratio = 5.0;

/* E[max(x - t, 0)^2] of a standard normal x. */
static double normal_beyond(double t)
{
    double density = exp(-0.5 * t * t) / sqrt(2 * 3.14159265358979323846);
    return (1 + t * t) * 0.5 * erfc(t / sqrt(2.0)) - t * density;
}

struct clip_reach clip_reach_of(uint32_t L)
{
    struct tcq_scale_fit fit;
    tcq_scale_fit_init(&fit, 3, L); /* the reach does not depend on k */
    return (struct clip_reach){fit.lowest, fit.highest,
                               normal_beyond(-fit.lowest) + normal_beyond(fit.highest)};
}

void clip_add(struct clip *clip, const struct clip_reach *reach, const float *weights,
              const uint16_t *scales, size_t step, size_t count)
{
    double scale = (double)tcq_f16_to_f32(scales[0]);
    for (size_t i = 0; i < count; i++) {
        if (step)
            scale = (double)tcq_f16_to_f32(scales[i]);
        double w = (double)weights[i], low = reach->lowest * scale, high = reach->highest * scale;
        double beyond = w > high ? w - high : w < low ? low - w : 0.0;
        clip->energy += w * w;
        clip->beyond += beyond * beyond;
        clip->clipped += beyond > 0;
    }
    clip->weights += count;
}

void clip_join(struct clip *clip, const struct clip *other)
{
    clip->energy += other->energy;
    clip->beyond += other->beyond;
    clip->weights += other->weights;
    clip->clipped += other->clipped;
}

double clip_share(const struct clip *clip)
{
    return clip->energy > 0 ? clip->beyond / clip->energy : 0.0;
}

bool clip_is_large(const struct clip *clip, const struct clip_reach *reach)
{
    return clip_share(clip) > large_share + large_ratio * reach->normal;
}

void clip_warn(const char *path, size_t count, const char *name, const struct clip *worst)
{
    cli_message("%s: outliers are cut off in %zu tensor%s, most in '%s': %.3f %% of its weights "
                "lose %.2f %% of its energy; --scale fit, or more bits, keep more of them",
                path, count, count == 1 ? "" : "s", name,
                100.0 * (double)worst->clipped / (double)worst->weights, 100.0 * clip_share(worst));
}
