/* Loops on a CPU, in single precision but for the shapes of signals, each one pass over memory where torch needs several. orbitgp/_native/__init__.py checks
 * shapes and calls them. Each has a plain version in torch, which serves where this file was not compiled.
 *
 * Tensors come as addresses of contiguous numbers. No function allocates, keeps or returns anything.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum { VERSION = 4 }; /* of the functions' arguments, as __init__.py expects them */

typedef Py_ssize_t size;

/* On x86 every loop is also compiled for the vectors of newer processors, and the loader picks the right version. LANES is the
 * number of floats that a product handles at once. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define VECTORS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define LANES 16
#else
#define VECTORS
#define LANES 4
#endif

/* Four numbers at once, in the vector extensions of GCC and Clang. */
typedef float V4 __attribute__((vector_size(16)));
typedef int32_t I4 __attribute__((vector_size(16)));
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (I4){__VA_ARGS__})
#endif

static inline V4 load(const float *from) {
    V4 value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* The same where fewer than four may be left; the rest is zero. */
static inline V4 load_some(const float *from, size left) {
    V4 value = {0};
    if (left >= 4) return load(from);
    for (size i = 0; i < left; i++) value[i] = from[i];
    return value;
}

static inline void store4(float *to, V4 a, V4 b, V4 c, V4 d) {
    memcpy(to, &a, sizeof a), memcpy(to + 4, &b, sizeof b), memcpy(to + 8, &c, sizeof c), memcpy(to + 12, &d, sizeof d);
}

static inline int thread_number(void) {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

static inline size least(size a, size b) { return a < b ? a : b; }

static inline float sum(V4 value) { return (value[0] + value[1]) + (value[2] + value[3]); }

/* ---- Interpolation: orbitgp/orbits/images/interpolation.py has the formulas ---- */

enum { BORDER = 2, TILE = 256, STRIP = 64 };

/* Each form is one instruction on its processor. Points are never NaN here. */
#ifdef __aarch64__
#define LARGER(a, b) fmaxf(a, b)
#define SMALLER(a, b) fminf(a, b)
#else
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#endif

typedef struct {
    const float *images, *cx, *cy, *basis;
    size rows, samples, channels, height, width, terms;
    int shared; /* one set of points for all images */
} Warp;

/* a, b, c, d of every cell between four pixels of one image, with two rows and columns of zeros around it. */
static void fill_cells(const float *image, size height, size width, float *cells) {
    for (size i = 0; i < height + BORDER + 1; i++) {
        for (size j = 0; j < width + BORDER + 1; j++) {
            size y = i - BORDER, x = j - BORDER;
            int above = y >= 0 && y < height, below = y + 1 >= 0 && y + 1 < height;
            int left = x >= 0 && x < width, right = x + 1 >= 0 && x + 1 < width;
            float a = above && left ? image[y * width + x] : 0.0f;
            float b = above && right ? image[y * width + x + 1] : 0.0f;
            float c = below && left ? image[(y + 1) * width + x] : 0.0f;
            float d = below && right ? image[(y + 1) * width + x + 1] : 0.0f;
            float *cell = cells + 4 * (i * (width + BORDER + 1) + j);
            cell[0] = a, cell[1] = b - a, cell[2] = c - a, cell[3] = d - b - c + a;
        }
    }
}

/* The cells of all channels of one image. */
static void fill_image(const Warp *w, size row, float *cells) {
    const size plane = 4 * (w->height + BORDER + 1) * (w->width + BORDER + 1), pixels = w->height * w->width;
    for (size c = 0; c < w->channels; c++)
        fill_cells(w->images + (row * w->channels + c) * pixels, w->height, w->width, cells + c * plane);
}

/* The cell of a point and its place in the cell. Points outside are moved to the border. */
static inline void place(const Warp *w, float x, float y, uint32_t *cell, float *p, float *q) {
    x = SMALLER(LARGER(x, 0.0f), (float)(w->width + BORDER)), y = SMALLER(LARGER(y, 0.0f), (float)(w->height + BORDER));
    const int32_t column = (int32_t)x, row = (int32_t)y;
    *p = x - (float)column, *q = y - (float)row;
    *cell = (uint32_t)row * (uint32_t)(w->width + BORDER + 1) + (uint32_t)column;
}

/* The same for a tile of points, given as expansions in functions of the pixel that begin with 1, x and y. */
static inline void locate(const Warp *w, size at, size start, size count, uint32_t *restrict cell, float *restrict p,
                          float *restrict q) {
    const Warp sizes = *w;
    const size pixels = w->height * w->width, terms = w->terms;
    const float *cx = w->cx + at, *cy = w->cy + at;
    const float cx0 = cx[0], cx1 = cx[1], cx2 = cx[2], cy0 = cy[0], cy1 = cy[1], cy2 = cy[2];
    const float *restrict fx = w->basis + pixels + start, *restrict fy = fx + pixels;
    if (terms == 3) {
        for (size i = 0; i < count; i++)
            place(&sizes, cx0 + cx1 * fx[i] + cx2 * fy[i], cy0 + cy1 * fx[i] + cy2 * fy[i], cell + i, p + i, q + i);
    } else {
        for (size i = 0; i < count; i++) {
            p[i] = cx0 + cx1 * fx[i] + cx2 * fy[i];
            q[i] = cy0 + cy1 * fx[i] + cy2 * fy[i];
        }
        size k = 3;
        for (; k + 4 <= terms; k += 4) { /* four functions at a time: the sums are read and written a quarter as often */
            const float x0 = cx[k], x1 = cx[k + 1], x2 = cx[k + 2], x3 = cx[k + 3];
            const float y0 = cy[k], y1 = cy[k + 1], y2 = cy[k + 2], y3 = cy[k + 3];
            const float *restrict f0 = w->basis + k * pixels + start, *restrict f1 = f0 + pixels, *restrict f2 = f1 + pixels,
                                  *restrict f3 = f2 + pixels;
            for (size i = 0; i < count; i++) {
                p[i] += x0 * f0[i] + x1 * f1[i] + x2 * f2[i] + x3 * f3[i];
                q[i] += y0 * f0[i] + y1 * f1[i] + y2 * f2[i] + y3 * f3[i];
            }
        }
        for (; k < terms; k++) {
            const float x = cx[k], y = cy[k], *restrict f = w->basis + k * pixels + start;
            for (size i = 0; i < count; i++) p[i] += x * f[i], q[i] += y * f[i];
        }
        for (size i = 0; i < count; i++) place(&sizes, p[i], q[i], cell + i, p + i, q + i);
    }
    for (size i = count; i < count + 3; i++) cell[i] = 0, p[i] = q[i] = 0.0f; /* look_up reads four points at a time */
}

/* a, b, c, d of four cells, each a vector. */
static inline void look_up(const V4 *table, const uint32_t *cell, V4 *a, V4 *b, V4 *c, V4 *d) {
    const V4 r0 = table[cell[0]], r1 = table[cell[1]], r2 = table[cell[2]], r3 = table[cell[3]];
    const V4 ab01 = SHUFFLE(r0, r1, 0, 4, 1, 5), cd01 = SHUFFLE(r0, r1, 2, 6, 3, 7);
    const V4 ab23 = SHUFFLE(r2, r3, 0, 4, 1, 5), cd23 = SHUFFLE(r2, r3, 2, 6, 3, 7);
    *a = SHUFFLE(ab01, ab23, 0, 1, 4, 5), *b = SHUFFLE(ab01, ab23, 2, 3, 6, 7);
    *c = SHUFFLE(cd01, cd23, 0, 1, 4, 5), *d = SHUFFLE(cd01, cd23, 2, 3, 6, 7);
}

VECTORS static void warp_sample(const Warp *w, const float *cells, size row, size sample, float *out) {
    const size pixels = w->height * w->width, plane = 4 * (w->height + BORDER + 1) * (w->width + BORDER + 1);
    const size at = ((w->shared ? 0 : row) * w->samples + sample) * w->terms;
    uint32_t cell[TILE + 3];
    float p[TILE + 3], q[TILE + 3];
    out += (row * w->samples + sample) * w->channels * pixels;
    for (size start = 0; start < pixels; start += TILE) {
        const size count = pixels - start < TILE ? pixels - start : TILE;
        locate(w, at, start, count, cell, p, q);
        for (size channel = 0; channel < w->channels; channel++) {
            float *to = out + channel * pixels + start;
            for (size i = 0; i < count; i += 4) {
                V4 a, b, c, d;
                look_up((const V4 *)(cells + channel * plane), cell + i, &a, &b, &c, &d);
                const V4 x = load(p + i), y = load(q + i), value = a + y * c + x * (b + y * d);
                if (i + 4 <= count)
                    memcpy(to + i, &value, sizeof value);
                else
                    memcpy(to + i, &value, (count - i) * sizeof(float));
            }
        }
    }
}

/* The gradient of a sample: with respect to its coefficients and, with towards, to the cells of its image. */
VECTORS static void warp_sample_back(const Warp *w, const float *cells, size row, size sample, const float *grad, float *to_x,
                                     float *to_y, float *towards) {
    const size pixels = w->height * w->width, plane = 4 * (w->height + BORDER + 1) * (w->width + BORDER + 1);
    const size at = (row * w->samples + sample) * w->terms;
    uint32_t cell[TILE + 3];
    float p[TILE + 3], q[TILE + 3];
    V4 gx[TILE / 4], gy[TILE / 4];
    grad += (row * w->samples + sample) * w->channels * pixels;
    for (size k = 0; k < w->terms; k++) to_x[at + k] = to_y[at + k] = 0.0f;
    for (size start = 0; start < pixels; start += TILE) {
        const size count = pixels - start < TILE ? pixels - start : TILE, fours = (count + 3) / 4;
        locate(w, at, start, count, cell, p, q);
        for (size channel = 0; channel < w->channels; channel++) {
            const float *g = grad + channel * pixels + start;
            for (size j = 0; j < fours; j++) {
                V4 a, b, c, d;
                look_up((const V4 *)(cells + channel * plane), cell + 4 * j, &a, &b, &c, &d);
                const V4 up = load_some(g + 4 * j, count - 4 * j);
                const V4 x = up * (b + load(q + 4 * j) * d), y = up * (c + load(p + 4 * j) * d);
                gx[j] = channel ? gx[j] + x : x, gy[j] = channel ? gy[j] + y : y;
            }
            for (size i = 0; towards && i < count; i++) {
                float *c = towards + channel * plane + 4 * cell[i];
                c[0] += g[i], c[1] += g[i] * p[i], c[2] += g[i] * q[i], c[3] += g[i] * p[i] * q[i];
            }
        }
        size k = 0;
        for (; k + 3 <= w->terms; k += 3) { /* three functions at a time: the sums of their products stay in registers */
            const float *f0 = w->basis + k * pixels + start, *f1 = f0 + pixels, *f2 = f1 + pixels;
            V4 x0 = {0}, x1 = {0}, x2 = {0}, y0 = {0}, y1 = {0}, y2 = {0};
            for (size j = 0; j < fours; j++) {
                const size left = count - 4 * j;
                const V4 v0 = load_some(f0 + 4 * j, left), v1 = load_some(f1 + 4 * j, left), v2 = load_some(f2 + 4 * j, left);
                x0 += gx[j] * v0, x1 += gx[j] * v1, x2 += gx[j] * v2;
                y0 += gy[j] * v0, y1 += gy[j] * v1, y2 += gy[j] * v2;
            }
            to_x[at + k] += sum(x0), to_x[at + k + 1] += sum(x1), to_x[at + k + 2] += sum(x2);
            to_y[at + k] += sum(y0), to_y[at + k + 1] += sum(y1), to_y[at + k + 2] += sum(y2);
        }
        for (; k < w->terms; k++) {
            const float *f = w->basis + k * pixels + start;
            V4 x = {0}, y = {0};
            for (size j = 0; j < fours; j++) {
                const V4 value = load_some(f + 4 * j, count - 4 * j);
                x += gx[j] * value, y += gy[j] * value;
            }
            to_x[at + k] += sum(x), to_y[at + k] += sum(y);
        }
    }
}

/* The gradient of the pixels from that of the cells. */
static void unfill_cells(const float *cells, size height, size width, float *image) {
    const size across = width + BORDER + 1;
    for (size y = 0; y < height; y++) {
        for (size x = 0; x < width; x++) {
            /* A pixel is the upper left, upper right, lower left and lower right corner of four cells. */
            const float *ul = cells + 4 * ((y + BORDER) * across + x + BORDER), *ur = ul - 4, *ll = ul - 4 * across,
                        *lr = ll - 4;
            image[y * width + x] = ul[0] - ul[1] - ul[2] + ul[3] + ur[1] - ur[3] + ll[2] - ll[3] + lr[3];
        }
    }
}

/* room holds, for each thread, the cells of one image; backward, their gradients too. */
static void interpolate(const Warp *w, float *room, float *out, int threads) {
    const size plane = 4 * (w->height + BORDER + 1) * (w->width + BORDER + 1);
#pragma omp parallel num_threads(threads)
    {
        float *cells = room + thread_number() * w->channels * plane;
        size filled = -1;
#pragma omp for schedule(static)
        for (size task = 0; task < w->rows * w->samples; task++) {
            const size row = task / w->samples;
            if (row != filled) fill_image(w, row, cells);
            filled = row;
            warp_sample(w, cells, row, task % w->samples, out);
        }
    }
}

static void interpolate_back(const Warp *w, float *room, const float *grad, float *to_x, float *to_y, float *to_images,
                             int threads) {
    const size plane = 4 * (w->height + BORDER + 1) * (w->width + BORDER + 1), pixels = w->height * w->width;
#pragma omp parallel num_threads(threads)
    {
        float *cells = room + thread_number() * w->channels * plane * (to_images ? 2 : 1);
        float *towards = to_images ? cells + w->channels * plane : NULL;
#pragma omp for schedule(static)
        for (size row = 0; row < w->rows; row++) {
            fill_image(w, row, cells);
            if (towards) memset(towards, 0, sizeof(float) * w->channels * plane);
            for (size sample = 0; sample < w->samples; sample++)
                warp_sample_back(w, cells, row, sample, grad, to_x, to_y, towards);
            for (size c = 0; towards && c < w->channels; c++)
                unfill_cells(towards + c * plane, w->height, w->width, to_images + (row * w->channels + c) * pixels);
        }
    }
}

/* ---- Kernels: orbitgp/kernels/_expectations_cpu.py ---- */

static inline V4 choose(I4 condition, V4 yes, V4 no) { return (V4)(((I4)yes & condition) | ((I4)no & ~condition)); }

/* 2^x, to two units of its last place; 2^-126 where it would be smaller, infinite from 127.5 on. NaN stays NaN. */
static inline V4 power_of_two(V4 x) {
    const V4 above = choose(x < -126.0f, (V4){0} - 126.0f, x), y = choose(above > 128.0f, (V4){0} + 128.0f, above);
    const V4 shifted = y + 12582912.0f; /* 1.5 2^23: the last bits are the nearest integer */
    const V4 f = y - (shifted - 12582912.0f), f2 = f * f;
    const V4 high = (9.6184369e-3f + 1.3398875e-3f * f) + 1.5353362e-4f * f2;
    const V4 series = (1.0f + 6.9314718e-1f * f) + f2 * ((2.4022648e-1f + 5.5503324e-2f * f) + f2 * high);
    return series * (V4)(((I4)shifted << 23) + (127 << 23));
}

/* Replace h by 2^h, and write its means over blocks of consecutive rows. */
VECTORS static void exp2_block(float *restrict h, size samples, size columns, float *restrict mean) {
    const float weight = 1.0f / (float)samples;
    memset(mean, 0, columns * sizeof(float));
    for (size i = 0; i < samples; i++, h += columns) {
        size j = 0;
        for (; j + 16 <= columns; j += 16) {
            const V4 a = power_of_two(load(h + j)), b = power_of_two(load(h + j + 4)), c = power_of_two(load(h + j + 8)),
                     d = power_of_two(load(h + j + 12));
            store4(h + j, a, b, c, d);
            store4(mean + j, load(mean + j) + a, load(mean + j + 4) + b, load(mean + j + 8) + c, load(mean + j + 12) + d);
        }
        for (; j < columns; j++) mean[j] += h[j] = power_of_two((V4){h[j]})[0];
    }
    for (size j = 0; j < columns; j++) mean[j] *= weight;
}

/* Write [x - centre, |x - centre|^2]; the last column is filled already. */
VECTORS static void augment_row(const float *x, const float *centre, size dim, float *wide) {
    float norm = 0.0f;
#pragma omp simd reduction(+ : norm)
    for (size j = 0; j < dim; j++) {
        const float d = x[j] - centre[j];
        wide[j] = d;
        norm += d * d;
    }
    wide[dim] = norm;
}

typedef float VN __attribute__((vector_size(4 * LANES)));

#define LOAD_SOME(value, from, left)        \
    VN value = {0};                         \
    if (left >= LANES)                      \
        memcpy(&value, from, sizeof value); \
    else                                    \
        for (size lane = 0; lane < left; lane++) value[lane] = (from)[lane]

/* |a_i - b_j|^2 = |a_i|^2 + |b_j|^2 - 2 a_i . b_j between rows of [x, |x|^2, 1], four against four. Where fewer than four are
 * left, the last row is repeated. Where a is b, half of the pairs is computed and mirrored. */
VECTORS static void distances(const float *a, const float *b, size many, size dim, float *out) {
    const size wide = dim + 2;
    for (size i = 0; i < many; i += 4) {
        const float *a0 = a + i * wide, *a1 = a + least(i + 1, many - 1) * wide, *a2 = a + least(i + 2, many - 1) * wide,
                    *a3 = a + least(i + 3, many - 1) * wide;
        for (size j = a == b ? i : 0; j < many; j += 4) {
            const float *b0 = b + j * wide, *b1 = b + least(j + 1, many - 1) * wide, *b2 = b + least(j + 2, many - 1) * wide,
                        *b3 = b + least(j + 3, many - 1) * wide;
            VN dots[4][4] = {{{0}}};
            for (size d = 0; d < dim; d += LANES) {
                const size left = dim - d;
                LOAD_SOME(x0, a0 + d, left);
                LOAD_SOME(x1, a1 + d, left);
                LOAD_SOME(x2, a2 + d, left);
                LOAD_SOME(x3, a3 + d, left);
                LOAD_SOME(y0, b0 + d, left);
                dots[0][0] += x0 * y0, dots[1][0] += x1 * y0, dots[2][0] += x2 * y0, dots[3][0] += x3 * y0;
                LOAD_SOME(y1, b1 + d, left);
                dots[0][1] += x0 * y1, dots[1][1] += x1 * y1, dots[2][1] += x2 * y1, dots[3][1] += x3 * y1;
                LOAD_SOME(y2, b2 + d, left);
                dots[0][2] += x0 * y2, dots[1][2] += x1 * y2, dots[2][2] += x2 * y2, dots[3][2] += x3 * y2;
                LOAD_SOME(y3, b3 + d, left);
                dots[0][3] += x0 * y3, dots[1][3] += x1 * y3, dots[2][3] += x2 * y3, dots[3][3] += x3 * y3;
            }
            for (size r = 0; r < 4 && i + r < many; r++)
                for (size c = 0; c < 4 && j + c < many; c++) {
                    float dot = 0.0f;
                    for (int lane = 0; lane < LANES; lane++) dot += dots[r][c][lane];
                    const float d2 = a[(i + r) * wide + dim] + b[(j + c) * wide + dim] - 2.0f * dot;
                    out[(i + r) * many + j + c] = d2;
                    if (a == b) out[(j + c) * many + i + r] = d2;
                }
        }
    }
}

/* out_i += own_i x_i + sum_j between_ij other_j for the samples of one block, four rows of sixteen columns at a time. Where
 * fewer than four rows are left, the last row is computed again from the same start. Where fewer than sixteen columns are left,
 * they are computed one by one. */
VECTORS static void gather_block(const float *x, const float *own, const float *between, const float *other, size many,
                                 size dim, float *out) {
    const size wide = dim + 2, whole = dim - dim % 16;
    for (size strip = 0; strip < whole; strip += STRIP)
        for (size i = 0; i < many; i += 4)
            for (size d = strip; d < least(strip + STRIP, whole); d += 16) {
                const size i1 = least(i + 1, many - 1), i2 = least(i + 2, many - 1), i3 = least(i + 3, many - 1);
                const float *w0 = between + i * many, *w1 = between + i1 * many, *w2 = between + i2 * many,
                            *w3 = between + i3 * many;
#define BEGIN(r, c) load(out + r * dim + d + 4 * c) + own[r] * load(x + r * wide + d + 4 * c)
                V4 s00 = BEGIN(i, 0), s01 = BEGIN(i, 1), s02 = BEGIN(i, 2), s03 = BEGIN(i, 3);
                V4 s10 = BEGIN(i1, 0), s11 = BEGIN(i1, 1), s12 = BEGIN(i1, 2), s13 = BEGIN(i1, 3);
                V4 s20 = BEGIN(i2, 0), s21 = BEGIN(i2, 1), s22 = BEGIN(i2, 2), s23 = BEGIN(i2, 3);
                V4 s30 = BEGIN(i3, 0), s31 = BEGIN(i3, 1), s32 = BEGIN(i3, 2), s33 = BEGIN(i3, 3);
#undef BEGIN
                for (size j = 0; j < many; j++) {
                    const float *b = other + j * wide + d;
                    const V4 b0 = load(b), b1 = load(b + 4), b2 = load(b + 8), b3 = load(b + 12);
                    s00 += w0[j] * b0, s01 += w0[j] * b1, s02 += w0[j] * b2, s03 += w0[j] * b3;
                    s10 += w1[j] * b0, s11 += w1[j] * b1, s12 += w1[j] * b2, s13 += w1[j] * b3;
                    s20 += w2[j] * b0, s21 += w2[j] * b1, s22 += w2[j] * b2, s23 += w2[j] * b3;
                    s30 += w3[j] * b0, s31 += w3[j] * b1, s32 += w3[j] * b2, s33 += w3[j] * b3;
                }
                store4(out + i * dim + d, s00, s01, s02, s03); /* repeated rows store the same numbers again */
                store4(out + i1 * dim + d, s10, s11, s12, s13);
                store4(out + i2 * dim + d, s20, s21, s22, s23);
                store4(out + i3 * dim + d, s30, s31, s32, s33);
            }
    for (size i = 0; i < many; i++)
        for (size d = whole; d < dim; d++) {
            float value = out[i * dim + d] + own[i] * x[i * wide + d];
            for (size j = 0; j < many; j++) value += between[i * many + j] * other[j * wide + d];
            out[i * dim + d] = value;
        }
}

/* w = slopes * grad for rows of slopes that share a row of grad, and the sums of their rows. */
VECTORS static void scale_block(const float *slopes, const float *grad, size samples, size columns, float *w, float *sums) {
    for (size i = 0; i < samples; i++, slopes += columns, w += columns) {
        V4 a = {0}, b = {0};
        size j = 0;
        for (; j + 16 <= columns; j += 16) {
            const V4 w0 = load(slopes + j) * load(grad + j), w1 = load(slopes + j + 4) * load(grad + j + 4),
                     w2 = load(slopes + j + 8) * load(grad + j + 8), w3 = load(slopes + j + 12) * load(grad + j + 12);
            store4(w + j, w0, w1, w2, w3);
            a += w0 + w1, b += w2 + w3;
        }
        float total = sum(a + b);
        for (; j < columns; j++) total += w[j] = slopes[j] * grad[j];
        sums[i] = total;
    }
}

/* Copy the lower triangle of a matrix to the upper, a tile at a time. */
static void mirror_rows(float *matrix, size n, size begin) {
    const size end = least(begin + 32, n);
    for (size other = 0; other <= begin; other += 32)
        for (size i = begin; i < end; i++)
            for (size j = other; j < least(other + 32, i); j++) matrix[j * n + i] = matrix[i * n + j];
}

/* ---- Shapes of signals, in double precision: orbitgp/kernels/shape_histograms.py ---- */

enum { LANES8 = 8, AT_ONCE = 3 }; /* the arrows of a sample, padded with zeros; and directions that are summed at once */

/* Eight numbers, in vectors that the processor has. */
#ifdef __x86_64__
typedef double Vector __attribute__((vector_size(32)));
typedef int64_t Bits __attribute__((vector_size(32)));
#else
typedef double Vector __attribute__((vector_size(16)));
typedef int64_t Bits __attribute__((vector_size(16)));
#endif
enum { LONG = sizeof(Vector) / sizeof(double), PIECES = LANES8 / LONG };
typedef struct {
    Vector at[PIECES];
} Eight;

static inline void add_product(Eight *to, double factor, const double *from) {
    for (int i = 0; i < PIECES; i++) {
        Vector piece;
        memcpy(&piece, from + i * LONG, sizeof piece);
        to->at[i] += factor * piece;
    }
}

static inline void add_eight(Eight *to, double factor, const Eight *from) {
    for (int i = 0; i < PIECES; i++) to->at[i] += factor * from->at[i];
}

typedef struct {
    const double *terms, *tuning, *weights;
    size scales, rows, length, directions, windows;
} Shapes;

/* x becomes e^x, to two units of its last place, for x between -700 and 700; beyond, what it is there. NaN stays NaN. */
static inline void exponential(Vector *x) {
    const Vector zero = {0}, lowest = zero - 700.0, highest = zero + 700.0;
    const Bits below = *x < lowest, above = *x > highest;
    const Vector y = (Vector)(((Bits)*x & ~(below | above)) | ((Bits)lowest & below) | ((Bits)highest & above));
    const Vector shifted = y * 1.4426950408889634 + 6755399441055744.0; /* 1.5 2^52: the last bits are the nearest integer */
    const Vector n = shifted - 6755399441055744.0;
    const Vector r = (y - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    Vector p = zero + 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0, p = p * r + 1.0 / 39916800.0, p = p * r + 1.0 / 3628800.0, p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0, p = p * r + 1.0 / 5040.0, p = p * r + 1.0 / 720.0, p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0, p = p * r + 1.0 / 6.0, p = p * r + 0.5, p = p * r + 1.0, p = p * r + 1.0;
    *x = (Vector)((Bits)p + ((Bits)shifted << 52));
}

/* The arrows of one signal, (scales, length, 8). */
VECTORS static void fill_arrows(const Shapes *s, size row, double *restrict arrows) {
    const size kind = s->scales * s->rows * s->length;
    double tuning[3][LANES8] = {{0}};
    for (size d = 0; d < s->directions; d++)
        for (size k = 0; k < 3; k++) tuning[k][d] = s->tuning[3 * d + k];
    for (size scale = 0; scale < s->scales; scale++) {
        const double *terms = s->terms + (scale * s->rows + row) * s->length;
        for (size t = 0; t < s->length; t++) {
            Eight found = {0};
            for (int k = 0; k < 3; k++) add_product(&found, terms[k * kind + t], tuning[k]);
            for (int i = 0; i < PIECES; i++) exponential(found.at + i);
            double *at = arrows + (scale * s->length + t) * LANES8;
            memcpy(at, &found, sizeof found);
            for (size d = s->directions; d < LANES8; d++) at[d] = 0.0;
        }
    }
}

/* out: (pairs, windows, directions, directions) of one signal. */
VECTORS static void pair_means_row(const Shapes *s, const double *restrict arrows, double *restrict out) {
    const size length = s->length, directions = s->directions;
    for (size pair = 0; pair + 1 < s->scales; pair++) {
        const double *restrict fine = arrows + pair * length * LANES8, *restrict coarse = fine + length * LANES8;
        for (size w = 0; w < s->windows; w++, out += directions * directions) {
            const double *restrict weights = s->weights + w * length;
            for (size d = 0; d < directions; d += AT_ONCE) {
                Eight sums[AT_ONCE] = {0};
                for (size t = 0; t < length; t++) {
                    const double *restrict f = fine + t * LANES8 + d, *restrict c = coarse + t * LANES8;
                    for (int i = 0; i < AT_ONCE; i++) add_product(sums + i, weights[t] * f[i], c);
                }
                for (size i = 0; i < AT_ONCE && d + i < directions; i++)
                    memcpy(out + (d + i) * directions, sums + i, sizeof(double) * directions);
            }
        }
    }
}

/* The gradient of one signal. grads is room for two paddings of grad; to_tuning is (3, 8). */
VECTORS static void pair_means_back_row(const Shapes *s, size row, const double *restrict arrows, const double *restrict grad,
                                        double *restrict grads, double *restrict to_arrows, double *restrict to_terms,
                                        double *restrict to_tuning, double *restrict to_weights) {
    const size length = s->length, directions = s->directions, windows = s->windows, block = LANES8 * LANES8;
    double *restrict turned = grads + windows * block;
    Eight tunings[3];
    memcpy(tunings, to_tuning, sizeof tunings);
    memset(to_arrows, 0, sizeof(double) * length * LANES8);
    memset(grads, 0, sizeof(double) * 2 * windows * block);
    for (size pair = 0; pair + 1 < s->scales; pair++) {
        for (size w = 0; w < windows; w++)
            for (size d = 0; d < directions; d++)
                for (size e = 0; e < directions; e++, grad++)
                    grads[w * block + d * LANES8 + e] = turned[w * block + e * LANES8 + d] = *grad;
        for (size t = 0; t < length; t++) {
            const size at = (pair * length + t) * LANES8, next = at + length * LANES8;
            const double *restrict fine = arrows + at, *restrict coarse = arrows + next;
            Eight to_fine = {0}, to_coarse = {0};
            for (size w = 0; w < windows; w++) {
                const double *restrict g = grads + w * block, *restrict h = turned + w * block;
                const double weight = s->weights[w * length + t];
                Eight p = {0}, q = {0};
                for (size k = 0; k < directions; k++) {
                    add_product(&p, fine[k], g + k * LANES8);
                    add_product(&q, coarse[k], h + k * LANES8);
                }
                add_eight(&to_fine, weight, &q);
                add_eight(&to_coarse, weight, &p);
                Vector total = {0};
                for (int i = 0; i < PIECES; i++) {
                    Vector piece;
                    memcpy(&piece, fine + i * LONG, sizeof piece);
                    total += piece * q.at[i];
                }
                for (int i = 0; i < LONG; i++) to_weights[w * length + t] += total[i];
            }
            Eight before;
            memcpy(&before, to_arrows + at, sizeof before);
            add_eight(&before, 1.0, &to_fine);
            memcpy(to_arrows + at, &before, sizeof before);
            memcpy(to_arrows + next, &to_coarse, sizeof to_coarse); /* the next pair adds what it has */
        }
    }
    const size kind = s->scales * s->rows * length;
    for (size scale = 0; scale < s->scales; scale++) {
        for (size t = 0; t < length; t++) {
            const size place = (scale * s->rows + row) * length + t, at = (scale * length + t) * LANES8;
            double to_exponents[LANES8];
            for (size d = 0; d < LANES8; d++) to_exponents[d] = to_arrows[at + d] * arrows[at + d];
            for (size k = 0; k < 3; k++) {
                double total = 0.0;
                for (size d = 0; d < directions; d++) total += s->tuning[3 * d + k] * to_exponents[d];
                to_terms[k * kind + place] = total;
                add_product(tunings + k, s->terms[k * kind + place], to_exponents);
            }
        }
    }
    memcpy(to_tuning, tunings, sizeof tunings);
}

/* ---- Python ---- */

#define NUMBERS(address) ((float *)(uintptr_t)(address))
#define DOUBLES(address) ((double *)(uintptr_t)(address))

static PyObject *py_interpolate(PyObject *self, PyObject *args) {
    unsigned long long images, cx, cy, basis, room, out;
    Warp w;
    int threads;
    if (!PyArg_ParseTuple(args, "KKKKKKnnnnnnpi", &images, &cx, &cy, &basis, &room, &out, &w.rows, &w.samples, &w.channels,
                          &w.height, &w.width, &w.terms, &w.shared, &threads))
        return NULL;
    w.images = NUMBERS(images), w.cx = NUMBERS(cx), w.cy = NUMBERS(cy), w.basis = NUMBERS(basis);
    Py_BEGIN_ALLOW_THREADS interpolate(&w, NUMBERS(room), NUMBERS(out), threads);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_interpolate_back(PyObject *self, PyObject *args) {
    unsigned long long images, cx, cy, basis, room, grad, to_x, to_y, to_images;
    Warp w;
    int threads;
    w.shared = 0;
    if (!PyArg_ParseTuple(args, "KKKKKKKKKnnnnnni", &images, &cx, &cy, &basis, &room, &grad, &to_x, &to_y, &to_images, &w.rows,
                          &w.samples, &w.channels, &w.height, &w.width, &w.terms, &threads))
        return NULL;
    w.images = NUMBERS(images), w.cx = NUMBERS(cx), w.cy = NUMBERS(cy), w.basis = NUMBERS(basis);
    Py_BEGIN_ALLOW_THREADS interpolate_back(&w, NUMBERS(room), NUMBERS(grad), NUMBERS(to_x), NUMBERS(to_y), NUMBERS(to_images),
                                            threads);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_exp2_means(PyObject *self, PyObject *args) {
    unsigned long long h, means;
    size blocks, samples, columns;
    int threads;
    if (!PyArg_ParseTuple(args, "KKnnni", &h, &means, &blocks, &samples, &columns, &threads)) return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size b = 0; b < blocks; b++)
            exp2_block(NUMBERS(h) + b * samples * columns, samples, columns, NUMBERS(means) + b * columns);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_augment(PyObject *self, PyObject *args) {
    unsigned long long x, centre, wide;
    size rows, dim;
    int threads;
    if (!PyArg_ParseTuple(args, "KKKnni", &x, &centre, &wide, &rows, &dim, &threads)) return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size i = 0; i < rows; i++) augment_row(NUMBERS(x) + i * dim, NUMBERS(centre), dim, NUMBERS(wide) + i * (dim + 2));
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_pair_distances(PyObject *self, PyObject *args) {
    unsigned long long x, out;
    size rows, blocks, samples, dim;
    int threads;
    if (!PyArg_ParseTuple(args, "KKnnnni", &x, &out, &rows, &blocks, &samples, &dim, &threads)) return NULL;
    const size row = blocks * samples * (dim + 2);
    const size many = blocks == 2 ? samples : blocks * samples, second = blocks == 2 ? samples * (dim + 2) : 0;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size n = 0; n < rows; n++)
            distances(NUMBERS(x) + n * row, NUMBERS(x) + n * row + second, many, dim, NUMBERS(out) + n * many * many);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_pair_gradients(PyObject *self, PyObject *args) {
    unsigned long long x, own, between, out;
    size blocks, samples, dim;
    int swap, threads;
    if (!PyArg_ParseTuple(args, "KKKKnnnpi", &x, &own, &between, &out, &blocks, &samples, &dim, &swap, &threads)) return NULL;
    const size block = samples * (dim + 2);
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size b = 0; b < blocks; b++)
            gather_block(NUMBERS(x) + b * block, NUMBERS(own) + b * samples, NUMBERS(between) + b * samples * samples,
                         NUMBERS(x) + (swap ? b ^ 1 : b) * block, samples, dim, NUMBERS(out) + b * samples * dim);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_scale(PyObject *self, PyObject *args) {
    unsigned long long slopes, grad, w, sums;
    size blocks, samples, columns;
    int threads;
    if (!PyArg_ParseTuple(args, "KKKKnnni", &slopes, &grad, &w, &sums, &blocks, &samples, &columns, &threads)) return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size b = 0; b < blocks; b++)
            scale_block(NUMBERS(slopes) + b * samples * columns, NUMBERS(grad) + b * columns, samples, columns,
                        NUMBERS(w) + b * samples * columns, NUMBERS(sums) + b * samples);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_mirror(PyObject *self, PyObject *args) {
    unsigned long long matrix;
    size n;
    int threads;
    if (!PyArg_ParseTuple(args, "Kni", &matrix, &n, &threads)) return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(dynamic)
        for (size begin = 0; begin < n; begin += 32) mirror_rows(NUMBERS(matrix), n, begin);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

/* room holds, for each thread, the arrows of one signal. */
static PyObject *py_pair_means(PyObject *self, PyObject *args) {
    unsigned long long terms, tuning, weights, room, out;
    Shapes s;
    size each;
    int threads;
    if (!PyArg_ParseTuple(args, "KKKKKnnnnnni", &terms, &tuning, &weights, &room, &out, &s.scales, &s.rows, &s.length,
                          &s.directions, &s.windows, &each, &threads))
        return NULL;
    s.terms = DOUBLES(terms), s.tuning = DOUBLES(tuning), s.weights = DOUBLES(weights);
    const size found = (s.scales - 1) * s.windows * s.directions * s.directions;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size row = 0; row < s.rows; row++) {
            double *arrows = DOUBLES(room) + thread_number() * each;
            fill_arrows(&s, row, arrows);
            pair_means_row(&s, arrows, DOUBLES(out) + row * found);
        }
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

/* Here room holds the gradients of arrows, too, and grad for each window; to_tuning and to_weights are for each thread. */
static PyObject *py_pair_means_back(PyObject *self, PyObject *args) {
    unsigned long long terms, tuning, weights, grad, room, to_terms, to_tuning, to_weights;
    Shapes s;
    size each;
    int threads;
    if (!PyArg_ParseTuple(args, "KKKKKKKKnnnnnni", &terms, &tuning, &weights, &grad, &room, &to_terms, &to_tuning, &to_weights,
                          &s.scales, &s.rows, &s.length, &s.directions, &s.windows, &each, &threads))
        return NULL;
    s.terms = DOUBLES(terms), s.tuning = DOUBLES(tuning), s.weights = DOUBLES(weights);
    const size found = (s.scales - 1) * s.windows * s.directions * s.directions, many = s.scales * s.length * LANES8;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size row = 0; row < s.rows; row++) {
            const int thread = thread_number();
            double *arrows = DOUBLES(room) + thread * each, *to_arrows = arrows + many + LANES8, *grads = to_arrows + many;
            fill_arrows(&s, row, arrows);
            pair_means_back_row(&s, row, arrows, DOUBLES(grad) + row * found, grads, to_arrows, DOUBLES(to_terms),
                                DOUBLES(to_tuning) + thread * 3 * LANES8, DOUBLES(to_weights) + thread * s.windows * s.length);
        }
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"interpolate", py_interpolate, METH_VARARGS, NULL},
    {"interpolate_back", py_interpolate_back, METH_VARARGS, NULL},
    {"exp2_means", py_exp2_means, METH_VARARGS, NULL},
    {"augment", py_augment, METH_VARARGS, NULL},
    {"pair_distances", py_pair_distances, METH_VARARGS, NULL},
    {"pair_gradients", py_pair_gradients, METH_VARARGS, NULL},
    {"scale", py_scale, METH_VARARGS, NULL},
    {"mirror", py_mirror, METH_VARARGS, NULL},
    {"pair_means", py_pair_means, METH_VARARGS, NULL},
    {"pair_means_back", py_pair_means_back, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "orbitgp._native._loops", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__loops(void) {
    PyObject *native = PyModule_Create(&module);
    if (native && PyModule_AddIntConstant(native, "VERSION", VERSION) < 0) Py_CLEAR(native);
    return native;
}
