/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sub-commands, each defined in its own cmd_*.c and listed in main.c.
 */
#ifndef TCQ_COMMANDS_H
#define TCQ_COMMANDS_H

#include "cli.h"

extern const struct cli_command cmd_quantize;
extern const struct cli_command cmd_merge;
extern const struct cli_command cmd_inspect;
extern const struct cli_command cmd_verify;
extern const struct cli_command cmd_dequantize;
extern const struct cli_command cmd_run;
extern const struct cli_command cmd_eval;
extern const struct cli_command cmd_synth;
extern const struct cli_command cmd_matmul;
extern const struct cli_command cmd_bench;
extern const struct cli_command cmd_info;

#endif
