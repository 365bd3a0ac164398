/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A picture of an evaluation: the error after each layer, and the KL divergence
 * along the text.
 */
#ifndef TCQ_PLOT_H
#define TCQ_PLOT_H

#include "cli.h"
#include "tcq_model.h"

/* Writes a PNG file; prints, and returns CLI_CONTINUE or an exit code. */
int plot_evaluation(const char *path, const struct tcq_evaluation *evaluation);

#endif
