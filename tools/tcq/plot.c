/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two panels drawn into an 8-bit grey image and written with
 * libpng.  Letters are 5 x 7 dots, those that the titles need.
 */
#include "plot.h"

#include <errno.h>
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replace.h"

enum { WIDTH = 960, HEIGHT = 640, LEFT = 90, RIGHT = 20, TOP = 40, PANEL = 230, GAP = 90 };
enum { WHITE = 255, LIGHT = 215, DARK = 0, FILL = 90, GLYPH_W = 5, GLYPH_H = 7, SCALE = 2 };

/* Rows from the top, five dots each, the leftmost in bit 4. */
static const struct {
    char letter;
    unsigned char rows[GLYPH_H];
} glyphs[] = {
    {'0', {14, 17, 19, 21, 25, 17, 14}}, {'1', {4, 12, 4, 4, 4, 4, 14}},
    {'2', {14, 17, 1, 2, 4, 8, 31}},     {'3', {31, 2, 4, 2, 1, 17, 14}},
    {'4', {2, 6, 10, 18, 31, 2, 2}},     {'5', {31, 16, 30, 1, 1, 17, 14}},
    {'6', {6, 8, 16, 30, 17, 17, 14}},   {'7', {31, 1, 2, 4, 8, 8, 8}},
    {'8', {14, 17, 17, 14, 17, 17, 14}}, {'9', {14, 17, 17, 15, 1, 2, 12}},
    {'.', {0, 0, 0, 0, 0, 12, 12}},      {'-', {0, 0, 0, 31, 0, 0, 0}},
    {'+', {0, 4, 4, 31, 4, 4, 0}},       {'K', {17, 18, 20, 24, 20, 18, 17}},
    {'L', {16, 16, 16, 16, 16, 16, 31}}, {'a', {0, 0, 14, 1, 15, 17, 15}},
    {'b', {16, 16, 22, 25, 17, 17, 30}}, {'d', {1, 1, 13, 19, 17, 17, 15}},
    {'e', {0, 0, 14, 17, 31, 16, 14}},   {'f', {6, 9, 8, 28, 8, 8, 8}},
    {'g', {0, 15, 17, 17, 15, 1, 14}},   {'h', {16, 16, 22, 25, 17, 17, 17}},
    {'i', {4, 0, 12, 4, 4, 4, 14}},      {'k', {16, 16, 18, 20, 24, 20, 18}},
    {'l', {12, 4, 4, 4, 4, 4, 14}},      {'n', {0, 0, 22, 25, 17, 17, 17}},
    {'o', {0, 0, 14, 17, 17, 17, 14}},   {'r', {0, 0, 22, 25, 16, 16, 16}},
    {'s', {0, 0, 14, 16, 14, 1, 30}},    {'t', {8, 8, 28, 8, 8, 9, 6}},
    {'v', {0, 0, 17, 17, 17, 10, 4}},    {'x', {0, 0, 17, 10, 4, 10, 17}},
    {'y', {0, 0, 17, 17, 15, 1, 14}},
};

struct image {
    unsigned char *pixels; /* [HEIGHT][WIDTH] */
};

static void fill(struct image *image, int x0, int y0, int x1, int y1, unsigned char grey)
{
    for (int y = y0 < 0 ? 0 : y0; y < y1 && y < HEIGHT; y++)
        for (int x = x0 < 0 ? 0 : x0; x < x1 && x < WIDTH; x++)
            image->pixels[y * WIDTH + x] = grey;
}

static void draw_text(struct image *image, int x, int y, const char *text)
{
    for (; *text; text++, x += (GLYPH_W + 1) * SCALE)
        for (size_t g = 0; g < sizeof glyphs / sizeof *glyphs; g++)
            for (int dot = 0; glyphs[g].letter == *text && dot < GLYPH_W * GLYPH_H; dot++)
                if (glyphs[g].rows[dot / GLYPH_W] >> (GLYPH_W - 1 - dot % GLYPH_W) & 1) {
                    int dx = x + dot % GLYPH_W * SCALE, dy = y + dot / GLYPH_W * SCALE;
                    fill(image, dx, dy, dx + SCALE, dy + SCALE, DARK);
                }
}

/* A panel of bars: values[i] for i < count, 0 at the bottom, `most` at the top;
 * the last bar ends at `end` of the axis. */
static void draw_panel(struct image *image, int top, const char *title, const double *values,
                       size_t count, double most, size_t end)
{
    int width = WIDTH - LEFT - RIGHT, bottom = top + PANEL;
    char label[32];
    draw_text(image, LEFT, top - 22, title);
    for (int i = 0; i <= 4; i++) {
        int y = bottom - i * PANEL / 4;
        fill(image, LEFT, y, WIDTH - RIGHT, y + 1, LIGHT);
        snprintf(label, sizeof label, "%.3g", most * i / 4);
        draw_text(image, 8, y - GLYPH_H * SCALE / 2, label);
    }
    for (size_t i = 0; i < count; i++) {
        int x0 = LEFT + (int)((double)i * width / (double)count);
        int x1 = LEFT + (int)((double)(i + 1) * width / (double)count);
        int h = most > 0 ? (int)lround(values[i] / most * PANEL) : 0;
        h = h > PANEL ? PANEL : h;
        fill(image, x0, bottom - h, x1 - x0 > 3 ? x1 - 1 : x1, bottom, FILL);
    }
    fill(image, LEFT, bottom, WIDTH - RIGHT, bottom + 1, DARK);
    fill(image, LEFT - 1, top, LEFT, bottom + 1, DARK);
    snprintf(label, sizeof label, "%zu", end);
    draw_text(image, LEFT, bottom + 8, "0");
    draw_text(image, WIDTH - RIGHT - (int)strlen(label) * (GLYPH_W + 1) * SCALE, bottom + 8, label);
}

static double most_of(const double *values, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

static int draw(struct image *image, const struct tcq_evaluation *e)
{
    size_t width = WIDTH - LEFT - RIGHT;
    size_t columns = e->scored < width ? e->scored : width;
    double *kl = calloc(columns + 1, sizeof *kl);
    if (!kl)
        return cli_out_of_memory();
    /* A column shows the mean of the positions that fall on it. */
    for (size_t c = 0; c < columns; c++) {
        size_t begin = c * e->scored / columns, end = (c + 1) * e->scored / columns;
        for (size_t i = begin; i < end; i++)
            kl[c] += (double)e->kl[i] / (double)(end - begin);
    }
    memset(image->pixels, WHITE, (size_t)WIDTH * HEIGHT);
    draw_panel(image, TOP, "relative error after layer", e->layer_error, e->layers,
               most_of(e->layer_error, e->layers), e->layers);
    draw_panel(image, TOP + PANEL + GAP, "KL along the text", kl, columns, most_of(kl, columns),
               e->scored);
    free(kl);
    return CLI_CONTINUE;
}

int plot_evaluation(const char *path, const struct tcq_evaluation *evaluation)
{
    struct image image = {malloc((size_t)WIDTH * HEIGHT)};
    if (!image.pixels)
        return cli_out_of_memory();
    int code = draw(&image, evaluation);
    png_image png = {.version = PNG_IMAGE_VERSION, .width = WIDTH, .height = HEIGHT,
                     .format = PNG_FORMAT_GRAY};
    png_alloc_size_t nbytes = PNG_IMAGE_PNG_SIZE_MAX(png);
    void *bytes = malloc(nbytes);
    if (code == CLI_CONTINUE && !bytes) {
        code = cli_out_of_memory();
    } else if (code == CLI_CONTINUE &&
               !png_image_write_to_memory(&png, bytes, &nbytes, 0, image.pixels, WIDTH, NULL)) {
        cli_message("%s: %s", path, png.message);
        code = CLI_FAILED;
    } else if (code == CLI_CONTINUE && !replace_file(path, bytes, nbytes)) {
        cli_message("%s: %s", path, strerror(errno));
        code = CLI_FAILED;
    }
    free(bytes);
    free(image.pixels);
    return code;
}
