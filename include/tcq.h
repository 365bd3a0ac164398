/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq.h - trellis-coded quantization of LLM weights: the public C API.
 *
 * A weight matrix is stored at k bits a weight as a path through a bitshift
 * trellis of 2^L states (code "1mad" of QTIP, arXiv 2406.11235).  This header
 * covers, in this order: status and errors, threads, data types, geometry,
 * the code, packed tensors, encoding, files, and linear layers that run on
 * packed weights directly.  docs/format.md describes the bits.
 *
 * Conventions
 *  - Every function that can fail returns enum tcq_status.  On failure the
 *    outputs are untouched unless the function says otherwise.
 *  - Set-up functions and parsers take an optional struct tcq_error *, filled
 *    with what was given and what was expected.  NULL is fine.
 *  - Destination before source; out-parameters last.
 *  - Counts are in elements unless the name ends in _nbytes.
 *  - Handles are opaque; destroy(NULL) does nothing.
 *  - The library never prints, exits or aborts, and keeps no global state:
 *    functions on different objects may run in different threads at once.
 *  - Matrices are row-major.  Packed words are little-endian uint32.
 */
#ifndef TCQ_H
#define TCQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(TCQ_SHARED) && defined(__GNUC__)
#define TCQ_API __attribute__((visibility("default")))
#else
#define TCQ_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------ */
/* Status and errors                                                         */
/* ------------------------------------------------------------------------ */

enum tcq_status {
    TCQ_OK = 0,
    TCQ_ERROR_ARGUMENT,    /* a null pointer, a size or an option that cannot be */
    TCQ_ERROR_GEOMETRY,    /* k, L, T, axis, layout or sizes do not fit together */
    TCQ_ERROR_FORMAT,      /* a file or buffer breaks its own format */
    TCQ_ERROR_UNSUPPORTED, /* well-formed, but this library does not do it */
    TCQ_ERROR_VALUE,       /* a non-finite or unrepresentable number */
    TCQ_ERROR_MEMORY,      /* an allocation failed */
    TCQ_ERROR_IO,          /* the operating system refused: errno is in the message */
    TCQ_ERROR_EXISTS,      /* the output exists and overwriting was not asked for */
    TCQ_ERROR_CANCELLED,   /* a progress callback asked to stop */
    TCQ_ERROR_DEVICE       /* the device is absent or reported an error */
};

/* A short English name of the status; never NULL. */
TCQ_API const char *tcq_status_string(enum tcq_status status);

/* What went wrong, for people.  message is always terminated. */
struct tcq_error {
    enum tcq_status status;
    char message[400];
};

/* The version of the library as "major.minor.patch". */
TCQ_API const char *tcq_version(void);

/* ------------------------------------------------------------------------ */
/* Context: threads and CPU features                                         */
/* ------------------------------------------------------------------------ */

/* CPU features that kernels may need, as bits.  tcq_cpu_detect() also asks
 * whether the operating system saves the registers concerned. */
enum tcq_cpu_flag {
    TCQ_CPU_AVX2 = 1u << 0,        /* AVX2, FMA, F16C */
    TCQ_CPU_AVX512 = 1u << 1,      /* AVX-512 F, BW, DQ, VL, CD */
    TCQ_CPU_AVX512_VBMI = 1u << 2, /* AVX-512 VBMI, VBMI2 */
    TCQ_CPU_AVX512_VNNI = 1u << 3,
    TCQ_CPU_AVX512_BF16 = 1u << 4,
    TCQ_CPU_AVX512_IFMA = 1u << 5,
    TCQ_CPU_NEON = 1u << 16,
    TCQ_CPU_NEON_DOTPROD = 1u << 17
};

/* The features of the CPU that the calling thread runs on. */
TCQ_API uint32_t tcq_cpu_detect(void);

/* Where linear layers and models of a context compute; encoders and everything
 * else stay on the CPU. */
enum tcq_device {
    TCQ_DEVICE_CPU = 0,
    TCQ_DEVICE_CUDA /* the first NVIDIA GPU; compute capability 8.0 or newer */
};

/* A thread pool and a choice of instruction sets, shared by encoders and
 * linear layers.  May be used from several threads at once (calls that use
 * the pool then take turns). */
struct tcq_context;

struct tcq_context_options {
    uint32_t threads;    /* 0: one for each processor that the process may use */
    bool limit_cpu;      /* false: use all that tcq_cpu_detect() reports */
    uint32_t cpu_flags;  /* with limit_cpu: use only these (0: plain C) */
    enum tcq_device device;
};

/* options may be NULL for defaults.  Errors: MEMORY; ARGUMENT when threads
 * exceeds 4096 or cpu_flags names a feature that this CPU lacks.  With a GPU:
 * UNSUPPORTED where the library was built without CUDA; DEVICE where there is no
 * driver, no GPU, or one too old. */
TCQ_API enum tcq_status tcq_context_create(const struct tcq_context_options *options,
                                           struct tcq_context **out, struct tcq_error *error);
TCQ_API void tcq_context_destroy(struct tcq_context *context);
TCQ_API uint32_t tcq_context_threads(const struct tcq_context *context);
TCQ_API uint32_t tcq_context_cpu_flags(const struct tcq_context *context);
TCQ_API enum tcq_device tcq_context_get_device(const struct tcq_context *context);

/* Called now and then from the calling thread's work with the units done so
 * far (0 <= done <= total).  Returning false asks the work to stop, which
 * then returns TCQ_ERROR_CANCELLED.  Calls never overlap, but may come from
 * any thread of the context's pool. */
typedef bool (*tcq_progress_fn)(void *user, uint64_t done, uint64_t total);

/* ------------------------------------------------------------------------ */
/* Data types                                                                */
/* ------------------------------------------------------------------------ */

/* Element types of tensors in files and buffers. */
enum tcq_dtype {
    TCQ_DTYPE_F32 = 0,
    TCQ_DTYPE_F16,  /* IEEE binary16 */
    TCQ_DTYPE_BF16, /* the upper half of a float32 */
    TCQ_DTYPE_F64,
    TCQ_DTYPE_U8,
    TCQ_DTYPE_I8,
    TCQ_DTYPE_U16,
    TCQ_DTYPE_I16,
    TCQ_DTYPE_U32,
    TCQ_DTYPE_I32,
    TCQ_DTYPE_U64,
    TCQ_DTYPE_I64,
    TCQ_DTYPE_BOOL,
    TCQ_DTYPE_COUNT
};

/* Bytes of one element; 0 for a value outside the enumeration. */
TCQ_API size_t tcq_dtype_nbytes(enum tcq_dtype dtype);
/* The name used by safetensors ("F32", "BF16", ...); never NULL. */
TCQ_API const char *tcq_dtype_name(enum tcq_dtype dtype);

/* Conversions of count elements.  Rounding is to nearest even; NaN stays NaN;
 * to F16, magnitudes of 65520 and more become infinite.  dtype is F32, F16,
 * BF16 or (from only) F64; anything else is TCQ_ERROR_ARGUMENT. */
TCQ_API enum tcq_status tcq_convert_from_f32(void *dst, enum tcq_dtype dtype, const float *src,
                                             size_t count);
TCQ_API enum tcq_status tcq_convert_to_f32(float *dst, const void *src, enum tcq_dtype dtype,
                                           size_t count);

/* ------------------------------------------------------------------------ */
/* Geometry of a packed tensor                                               */
/* ------------------------------------------------------------------------ */

#define TCQ_K_MIN 1u
#define TCQ_K_MAX 6u
#define TCQ_L_MIN 8u
#define TCQ_L_MAX 16u

/* How the word array of a packed tensor is ordered (docs/format.md). */
enum tcq_layout {
    TCQ_LAYOUT_ROW_MAJOR = 0, /* [rows, cols*k/32] */
    TCQ_LAYOUT_INTERLEAVED    /* [cols/512, rows, 48]; axis 0, k 3, T 256, L 12 only */
};

/* A linear layer y = W x with W [out, in] is stored as a matrix [rows, cols],
 * coded along cols.  axis 1: rows = out, cols = in.  axis 0: the transpose,
 * rows = in, cols = out.  Either way there is one scale a row. */
struct tcq_geometry {
    uint32_t k;      /* bits a weight, 1..6 */
    uint32_t L;      /* log2 of the trellis' states, 8..16 */
    uint32_t T;      /* weights a block: 64, 128 or 256 */
    uint32_t axis;   /* 0 or 1 */
    enum tcq_layout layout;
    uint64_t rows;   /* of the stored matrix */
    uint64_t cols;   /* of the stored matrix; a multiple of T */
};

/* TCQ_OK, or TCQ_ERROR_GEOMETRY with the first rule that is broken.  Sizes
 * whose byte counts would not fit a ptrdiff_t are refused too. */
TCQ_API enum tcq_status tcq_geometry_check(const struct tcq_geometry *geometry,
                                           struct tcq_error *error);

/* The following take a geometry that tcq_geometry_check accepts. */
TCQ_API uint64_t tcq_geometry_in(const struct tcq_geometry *geometry);  /* input features */
TCQ_API uint64_t tcq_geometry_out(const struct tcq_geometry *geometry); /* output features */
TCQ_API size_t tcq_geometry_block_words(const struct tcq_geometry *geometry); /* T*k/32 */
TCQ_API size_t tcq_geometry_row_words(const struct tcq_geometry *geometry);   /* cols*k/32 */
TCQ_API size_t tcq_geometry_words(const struct tcq_geometry *geometry);       /* rows*cols*k/32 */
/* k + 16/cols: words and scales over weights. */
TCQ_API double tcq_geometry_bits_per_weight(const struct tcq_geometry *geometry);

/* The index, in words, of the first word of block `block` of row `row`, in
 * either layout.  The block's words follow one another. */
TCQ_API size_t tcq_geometry_block_offset(const struct tcq_geometry *geometry, uint64_t row,
                                         uint64_t block);

/* ------------------------------------------------------------------------ */
/* The code 1MAD                                                             */
/* ------------------------------------------------------------------------ */

/* The integer y that a state emits: the byte sum of state*34038481 + 76625530
 * less 510, in [-510, 510].  state is taken mod 2^32. */
TCQ_API int32_t tcq_code_integer(uint32_t state);

/* The divisor d: a weight of unit scale is y / d, divided in float64 and
 * rounded to float32 (the precise table). */
#define TCQ_CODE_DIVISOR 147.800537109375

/* The precise value of one state. */
TCQ_API float tcq_code_value(uint32_t state);

/* Fill table[2^L] with the precise values.  Errors: ARGUMENT, L outside 8..16. */
TCQ_API enum tcq_status tcq_code_table(float *table, uint32_t L);

/* Root mean square of that table, in float64; 0 for an L outside 8..16. */
TCQ_API double tcq_code_rms(uint32_t L);

/* ------------------------------------------------------------------------ */
/* Blocks and packed tensors                                                 */
/* ------------------------------------------------------------------------ */

/* Pack T states of one tail-biting path into T*k/32 words.  Only the low k
 * bits of each state are stored; the rest follow from its neighbours.
 * Errors: GEOMETRY for a k, L, T that do not go together; VALUE if the states
 * are not a tail-biting path (then words are untouched). */
TCQ_API enum tcq_status tcq_block_pack(uint32_t *words, const uint16_t *states, uint32_t k,
                                       uint32_t L, uint32_t T);

/* The T states of one block.  Any words are a valid block. */
TCQ_API enum tcq_status tcq_block_unpack(uint16_t *states, const uint32_t *words, uint32_t k,
                                         uint32_t L, uint32_t T);

/* The state at position t < T of one block, from two neighbouring words. */
TCQ_API uint32_t tcq_block_state(const uint32_t *words, uint32_t k, uint32_t L, uint32_t T,
                                 uint32_t t);

/* A view of one packed tensor.  The caller owns both arrays and keeps them
 * alive; words must be aligned to 4 bytes, scales to 2. */
struct tcq_tensor {
    struct tcq_geometry geometry;
    const uint32_t *words;  /* [tcq_geometry_words] in the geometry's layout */
    const uint16_t *scales; /* [rows], binary16 */
};

/* Checks the geometry, the pointers and that every scale is finite. */
TCQ_API enum tcq_status tcq_tensor_check(const struct tcq_tensor *tensor, struct tcq_error *error);

/* Reorder the words of a tensor of axis 0, k 3, T 256, L 12 with cols a
 * multiple of 512.  `geometry` describes the tensor in row-major layout in both
 * directions; dst and src hold tcq_geometry_words words and must not overlap. */
TCQ_API enum tcq_status tcq_words_interleave(uint32_t *dst, const uint32_t *src,
                                             const struct tcq_geometry *geometry);
TCQ_API enum tcq_status tcq_words_deinterleave(uint32_t *dst, const uint32_t *src,
                                               const struct tcq_geometry *geometry);

/* Decode weights value(state) * scale of the stored matrix: one block (T
 * elements), one row (cols elements) or the whole matrix (rows * cols).
 * dtype is F32 (value*scale, one rounding), F16 or BF16 (that product rounded
 * once more).  Errors: ARGUMENT for a null pointer, another dtype, or a row
 * or block out of range.  The tensor must pass tcq_tensor_check. */
TCQ_API enum tcq_status tcq_decode_block(void *dst, enum tcq_dtype dtype,
                                         const struct tcq_tensor *tensor, uint64_t row,
                                         uint64_t block);
TCQ_API enum tcq_status tcq_decode_row(void *dst, enum tcq_dtype dtype,
                                       const struct tcq_tensor *tensor, uint64_t row);
TCQ_API enum tcq_status tcq_decode_tensor(void *dst, enum tcq_dtype dtype,
                                          const struct tcq_tensor *tensor,
                                          struct tcq_context *context);

/* ------------------------------------------------------------------------ */
/* Encoding                                                                  */
/* ------------------------------------------------------------------------ */

/* An encoder for one k, L, T: tables and one workspace a thread, allocated at
 * creation and nowhere else.  One call at a time an encoder. */
struct tcq_encoder;

/* How a row's scale is chosen; decoding does not depend on it. */
enum tcq_scale_rule {
    TCQ_SCALE_RMS = 0, /* RMS(row) / RMS(table), as docs/format.md has it */
    TCQ_SCALE_FIT      /* larger where the row has outliers beyond the code's reach */
};

struct tcq_encoder_options {
    uint32_t k; /* 1..6 */
    uint32_t L; /* 8..16; 0 means 12 */
    uint32_t T; /* 64, 128 or 256; 0 means 256 */
    enum tcq_scale_rule scale;
};

/* context supplies threads and instruction sets and must outlive the encoder. */
TCQ_API enum tcq_status tcq_encoder_create(struct tcq_context *context,
                                           const struct tcq_encoder_options *options,
                                           struct tcq_encoder **out, struct tcq_error *error);
TCQ_API void tcq_encoder_destroy(struct tcq_encoder *encoder);
/* Bytes that the encoder holds. */
TCQ_API size_t tcq_encoder_nbytes(const struct tcq_encoder *encoder);
/* The instruction set of its trellis step: "scalar", "avx2", "avx512", "neon". */
TCQ_API const char *tcq_encoder_isa(const struct tcq_encoder *encoder);

/* Encode rows x cols float32 weights (row r at src + r*src_stride) into
 * row-major words [rows, cols*k/32] and binary16 scales [rows].  A row's scale
 * follows the encoder's rule; each block is the tail-biting path of least squared
 * error that docs/format.md defines, the same bytes for every thread count and
 * instruction set.  progress (may be NULL) counts blocks.
 * Errors: GEOMETRY, cols not a multiple of T; VALUE, a non-finite weight or a
 * scale beyond binary16, with row and column; CANCELLED.  On failure words and
 * scales are undefined. */
TCQ_API enum tcq_status tcq_encode_rows(struct tcq_encoder *encoder, uint32_t *words,
                                        uint16_t *scales, const float *src, uint64_t rows,
                                        uint64_t cols, size_t src_stride,
                                        tcq_progress_fn progress, void *progress_user,
                                        struct tcq_error *error);

/* ------------------------------------------------------------------------ */
/* Files: reading                                                            */
/* ------------------------------------------------------------------------ */

#define TCQ_RANK_MAX 8u

/* One tensor of a source.  Strings live until the source is closed. */
struct tcq_source_tensor {
    const char *name;           /* Hugging Face's name, also for a GGUF file */
    const char *type;           /* "BF16", "F32", "U32", or GGUF's "Q4_1", ... */
    enum tcq_dtype dtype;       /* of `data`; TCQ_DTYPE_COUNT for a GGUF block type or
                                 * rows in another order (tcq_source_read_f32 reads
                                 * both), or a safetensors type that is listed only */
    uint32_t rank;              /* 0 for a scalar */
    uint64_t shape[TCQ_RANK_MAX]; /* row-major, outermost first */
    uint64_t count;             /* elements */
    uint64_t nbytes;            /* as stored */
    const char *file;           /* name of the file that holds it, without folders */
    const void *data;           /* the stored bytes, mapped; not necessarily aligned */
};

/* Weights to read: a .safetensors file, a folder with model.safetensors or a
 * sharded model.safetensors.index.json (and config.json), or a GGUF file of
 * version 2 or 3.  Files are mapped and checked completely at opening: header
 * length, offsets, overlaps, sizes, duplicate names, index against shards.  They
 * must not be truncated while the source is open.  A source may be read from
 * several threads at once. */
struct tcq_source;

enum tcq_source_kind {
    TCQ_SOURCE_SAFETENSORS = 0, /* one file */
    TCQ_SOURCE_FOLDER,
    TCQ_SOURCE_GGUF
};

/* Errors: IO, FORMAT, UNSUPPORTED (with what it seems to be: a Git LFS
 * pointer, a pickle, ...), MEMORY. */
TCQ_API enum tcq_status tcq_source_open(const char *path, struct tcq_source **out,
                                        struct tcq_error *error);
TCQ_API void tcq_source_close(struct tcq_source *source);
TCQ_API enum tcq_source_kind tcq_source_get_kind(const struct tcq_source *source);
TCQ_API size_t tcq_source_count(const struct tcq_source *source);
/* Tensor i < count, in the order of the names' bytes.  The pointer lives until
 * the source is closed; NULL if i is out of range. */
TCQ_API const struct tcq_source_tensor *tcq_source_get(const struct tcq_source *source, size_t i);
/* The tensor of that name, or NULL. */
TCQ_API const struct tcq_source_tensor *tcq_source_find(const struct tcq_source *source,
                                                        const char *name);
/* The text of config.json (for GGUF: made from its metadata), or NULL where
 * there is none.  Lives until the source is closed. */
TCQ_API const char *tcq_source_config(const struct tcq_source *source);

/* The tokenizer that a GGUF file carries, as the texts of tokenizer.json and
 * tokenizer_config.json (with the chat template), malloc'ed for the caller to
 * free.  Errors: UNSUPPORTED with what is not carried over, a SentencePiece
 * tokenizer for one (the weights can still be used); FORMAT; MEMORY; ARGUMENT
 * for a source that is not GGUF, whose tokenizer is a file beside it. */
TCQ_API enum tcq_status tcq_source_tokenizer(const struct tcq_source *source, char **tokenizer,
                                             char **tokenizer_config, struct tcq_error *error);
/* A string of a safetensors header's __metadata__ (of a folder: of its first
 * file that has it), or NULL.  Lives until the source is closed. */
TCQ_API const char *tcq_source_metadata(const struct tcq_source *source, const char *key);

/* Convert `row_count` rows from `row_first` (a row is the innermost dimension;
 * a vector is one row) to float32, dequantizing GGUF blocks and undoing the
 * row permutation of GGUF's rotary projections.  dst holds row_count * row
 * length elements.  Errors: ARGUMENT (range), UNSUPPORTED (an integer type). */
TCQ_API enum tcq_status tcq_source_read_f32(const struct tcq_source *source, float *dst,
                                            const struct tcq_source_tensor *tensor,
                                            uint64_t row_first, uint64_t row_count,
                                            struct tcq_error *error);

/* ------------------------------------------------------------------------ */
/* Files: packed modules and config.json                                     */
/* ------------------------------------------------------------------------ */

/* How one module is packed, as config.json says it. */
struct tcq_module_config {
    uint32_t k, L, T, axis;
};

/* The `quantization` section of a config.json. */
struct tcq_config;

/* Parse the text of a config.json.  Both `quantization` and
 * `quantization_config` are looked at and must agree where both exist; a file
 * without either is fine (no packed module).  Modules of other modes ("affine",
 * "mxfp4", "mxfp8", "nvfp4") are no packed modules; unknown keys are ignored.
 * Errors: FORMAT; GEOMETRY; UNSUPPORTED (an unknown code or mode); MEMORY. */
TCQ_API enum tcq_status tcq_config_parse(const char *text, size_t text_nbytes,
                                         struct tcq_config **out, struct tcq_error *error);
TCQ_API void tcq_config_destroy(struct tcq_config *config);
TCQ_API size_t tcq_config_module_count(const struct tcq_config *config);
/* The path of packed module i < count, in the order of the names' bytes; NULL
 * if i is out of range. */
TCQ_API const char *tcq_config_module_name(const struct tcq_config *config, size_t i);
/* True, and *out filled, if the module of that path is packed by a trellis. */
TCQ_API bool tcq_config_find(const struct tcq_config *config, const char *module,
                             struct tcq_module_config *out);

/* The packed tensor of module `module`: `<module>.weight` and
 * `<module>.scales` of the source with the geometry that its config gives,
 * checked as docs/format.md says, each refusal with its own message.  The view
 * lives until the source is closed.  It is of the mapped file; where that leaves
 * the words unaligned, of a copy that the source keeps.
 * Errors: ARGUMENT (config does not have the module); FORMAT; GEOMETRY; VALUE (a
 * scale that is not finite); MEMORY. */
TCQ_API enum tcq_status tcq_source_packed(const struct tcq_source *source,
                                          const struct tcq_config *config, const char *module,
                                          struct tcq_tensor *out, struct tcq_error *error);

/* Write the text of a config.json: every other key of source_text (NULL: an
 * empty object) is kept as it is, in order; `quantization` and
 * `quantization_config` hold the defaults and the modules.  Entries that the
 * source has for other modules stay, unless it names a `quant_method`.
 * *out is a malloc'ed string that the caller frees.
 * Errors: FORMAT (source_text); ARGUMENT (a name twice); GEOMETRY; MEMORY. */
struct tcq_module_entry {
    const char *name;                /* module path */
    bool packed;                     /* false: written as `false` */
    struct tcq_module_config config; /* when packed */
};
TCQ_API enum tcq_status tcq_config_write(const char *source_text,
                                         const struct tcq_module_entry *modules, size_t count,
                                         char **out, struct tcq_error *error);

/* ------------------------------------------------------------------------ */
/* Files: writing                                                            */
/* ------------------------------------------------------------------------ */

/* A safetensors file written in one pass: declare every tensor, begin, write
 * their bytes in the order declared, finish.  Memory stays bounded by the
 * header.  The bytes go to "<path>.partial", which no reader takes for a whole
 * file; finish syncs it to disk and renames it, so that a file of the final
 * name is always whole.  "<path>.partial.done" lists the tensors whose bytes
 * are on disk, and is gone in the end.  In the file, tensors of larger elements
 * come first, so that each lies aligned to its element; the data section is
 * aligned to 8 bytes.  One thread at a time a writer. */
struct tcq_writer;

/* Nothing is touched on disk before begin.  Errors: EXISTS if path exists and
 * overwrite is false, or is no regular file; MEMORY. */
TCQ_API enum tcq_status tcq_writer_create(const char *path, bool overwrite,
                                          struct tcq_writer **out, struct tcq_error *error);
/* Declare a tensor.  Errors: ARGUMENT (a duplicate, empty, reserved or non-UTF-8
 * name, a size that overflows, after begin); MEMORY. */
TCQ_API enum tcq_status tcq_writer_declare(struct tcq_writer *writer, const char *name,
                                           enum tcq_dtype dtype, uint32_t rank,
                                           const uint64_t *shape, struct tcq_error *error);
/* A string of the header's __metadata__. */
TCQ_API enum tcq_status tcq_writer_metadata(struct tcq_writer *writer, const char *key,
                                            const char *value, struct tcq_error *error);
/* Write the header and reserve the file's room on the disk.  With `resume`, a
 * "<path>.partial" whose header is the same is continued: *tensors_done (may be
 * NULL) is how many leading tensors are complete in it, and writing goes on at
 * the next; where there is none, or another, writing starts afresh.  What the
 * tensors hold is not compared: put what they depend on into the metadata.
 * Errors: IO (also where another process writes the same file); MEMORY. */
TCQ_API enum tcq_status tcq_writer_begin(struct tcq_writer *writer, bool resume,
                                         size_t *tensors_done, struct tcq_error *error);
/* Append bytes of the current tensor; may be called repeatedly a tensor.  After
 * an error the writer can only be destroyed; the partial file can be resumed.
 * Errors: ARGUMENT if more bytes come than were declared; IO. */
TCQ_API enum tcq_status tcq_writer_write(struct tcq_writer *writer, const void *data,
                                         size_t nbytes, struct tcq_error *error);
/* Errors: ARGUMENT if bytes are missing; EXISTS if path appeared meanwhile; IO. */
TCQ_API enum tcq_status tcq_writer_finish(struct tcq_writer *writer, struct tcq_error *error);
/* Frees the writer.  Unfinished, it leaves "<path>.partial" if keep_partial. */
TCQ_API void tcq_writer_destroy(struct tcq_writer *writer, bool keep_partial);

/* ------------------------------------------------------------------------ */
/* Linear layers on packed weights                                           */
/* ------------------------------------------------------------------------ */

/* Where and how a product is computed (docs/numerics.md). */
enum tcq_numerics {
    TCQ_NUMERICS_FAST = 0, /* integer weights, batch-invariant up to 32 vectors */
    TCQ_NUMERICS_REFERENCE /* fixed orders, the same bytes on every device */
};

/* A single operation.  AUTO selects by geometry, number of vectors, device and
 * numerics; any other is used as asked or refused with the reason. */
enum tcq_operation {
    TCQ_OPERATION_AUTO = 0,
    TCQ_OPERATION_REDUCE,           /* reference, axis 1, m 1..4 */
    TCQ_OPERATION_SCATTER,          /* reference, axis 0, m 1..4 */
    TCQ_OPERATION_SCATTER_BALANCED, /* reference, axis 0, k 3, T 256, L <= 12 */
    TCQ_OPERATION_SCATTER_TABLE,    /* the same with a table of y */
    TCQ_OPERATION_SPLIT_K,          /* reference, axis 0, bf16 weights */
    TCQ_OPERATION_TILED,            /* reference, axis 1, bf16 weights */
    TCQ_OPERATION_SMALL,            /* fast, m 1..32 */
    TCQ_OPERATION_WIDE,             /* expand in tiles, then a bf16 product */
    TCQ_OPERATION_WIDE_INT16,       /* fast: integer weights, x on a 16-bit grid */
    TCQ_OPERATION_COUNT
};
TCQ_API const char *tcq_operation_name(enum tcq_operation operation);

enum tcq_activations {
    TCQ_ACTIVATIONS_FLOAT = 0,
    TCQ_ACTIVATIONS_INT8 /* one scale a vector and block of T; see docs/numerics.md */
};

struct tcq_linear;

struct tcq_linear_options {
    enum tcq_numerics numerics;
    enum tcq_operation operation;
    enum tcq_activations activations;
    uint32_t splits; /* of REFERENCE scatter; 0 means 128 */
    /* What FAST may be told to need less scratch for: no half of a gate/up pair; and
     * the most vectors that one pass takes, by the small kernels (0: 32; more than
     * that go by the wide ones) and by the wide ones (0: 512). */
    bool alone;
    uint32_t small_m, wide_m;
};

/* A matrix of m vectors: vector i starts at data + i*stride elements. */
struct tcq_vectors {
    void *data;
    enum tcq_dtype dtype; /* F32, F16 or BF16 */
    size_t stride;        /* in elements; at least the vectors' length */
};

/*
 * On a GPU (a context with TCQ_DEVICE_CUDA): tcq_linear_create copies the tensor,
 * which lies in ordinary memory, to the GPU and waits for that.  In all calls on
 * such a layer x, y, mid, bias and dst are GPU memory, the caller's.  A call checks
 * its arguments, enqueues its work on the context's stream and returns: it neither
 * allocates nor waits, and may be captured in a CUDA graph; what fails on the GPU
 * shows where the caller waits for the stream.  All layers of a context share its
 * workspace: one call at a time, on one stream at a time.  Activations are FLOAT.
 */

/* The stream (a cudaStream_t) of a GPU context's layers from now on; NULL, as at
 * first, is the default stream.  ARGUMENT for a context of the CPU. */
TCQ_API enum tcq_status tcq_context_set_stream(struct tcq_context *context, void *stream);

/* A layer over `tensor`, whose arrays must outlive it (nothing is copied that
 * tcq_linear_nbytes does not count); on a GPU they are copied and may go.  options
 * may be NULL. */
TCQ_API enum tcq_status tcq_linear_create(struct tcq_context *context,
                                          const struct tcq_tensor *tensor,
                                          const struct tcq_linear_options *options,
                                          struct tcq_linear **out, struct tcq_error *error);
TCQ_API void tcq_linear_destroy(struct tcq_linear *linear);
/* Bytes that the layer holds beside the tensor's own. */
TCQ_API size_t tcq_linear_nbytes(const struct tcq_linear *linear);
/* Bytes of scratch that its calls use.  The context holds the largest of its
 * layers' and no call allocates; callers in several threads take turns. */
TCQ_API size_t tcq_linear_scratch_nbytes(const struct tcq_linear *linear);
/* The operation and kernel used for m vectors, for reports: AUTO and "none"
 * where the layer refuses that m. */
TCQ_API enum tcq_operation tcq_linear_operation(const struct tcq_linear *linear, uint64_t m);
TCQ_API const char *tcq_linear_kernel(const struct tcq_linear *linear, uint64_t m);

/* y[i] = W x[i] + bias for i < m.  x vectors have `in` elements, y vectors
 * `out`; bias is float32 [out] or NULL.  x and y must not overlap.  NaN and
 * infinities in x propagate as IEEE 754 says. */
TCQ_API enum tcq_status tcq_linear_forward(const struct tcq_linear *linear, uint64_t m,
                                           const struct tcq_vectors *y,
                                           const struct tcq_vectors *x, const float *bias,
                                           struct tcq_error *error);

/* The weights as a dense matrix W [out, in] (axis 0 is transposed back) with
 * row stride dst_stride; BF16 or F32. */
TCQ_API enum tcq_status tcq_linear_expand(const struct tcq_linear *linear, void *dst,
                                          enum tcq_dtype dtype, size_t dst_stride,
                                          struct tcq_error *error);

/* How the SwiGLU after gate and up is formed (docs/numerics.md). */
enum tcq_swiglu {
    TCQ_SWIGLU_FUSED = 0, /* sigmoid as 1/(1+exp(-g)) */
    TCQ_SWIGLU_SPLIT      /* as two projections followed by a SwiGLU, from exp(|g|) */
};

/* mid[i] = silu(gate x[i]) * (up x[i]) for i < m, over layers with the same
 * context, in and out features and axis 1; k may differ. */
TCQ_API enum tcq_status tcq_gate_up_forward(const struct tcq_linear *gate,
                                            const struct tcq_linear *up, uint64_t m,
                                            const struct tcq_vectors *mid,
                                            const struct tcq_vectors *x, enum tcq_swiglu tail,
                                            struct tcq_error *error);

#ifdef __cplusplus
}
#endif

#endif
