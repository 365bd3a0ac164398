/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcq_model.h - whole models on top of tcq.h: tokenizer, chat templates,
 * transformer, sampler and evaluation.
 *
 * Models are dense decoders of the llama family (Llama, SmolLM, Mistral), Qwen2
 * and Qwen3, read from a folder with packed modules, a folder in MLX's form, an
 * unpacked safetensors folder, or a GGUF file.  docs/model.md tells what is read
 * from each and what is refused.  The conventions of tcq.h hold here too.
 */
#ifndef TCQ_MODEL_H
#define TCQ_MODEL_H

#include "tcq.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------ */
/* Tokenizer                                                                 */
/* ------------------------------------------------------------------------ */

/* Byte-pair encoding as a tokenizer.json or a GGUF file describes it.  Not
 * changed after opening: any number of threads may use one. */
struct tcq_tokenizer;

/* path is a folder with a tokenizer.json (tokenizer_config.json and
 * generation_config.json add the end tokens and the chat template), a
 * tokenizer.json by itself, or a GGUF file.  Errors: IO, FORMAT, UNSUPPORTED
 * (with the name of the part that is not implemented), MEMORY. */
TCQ_API enum tcq_status tcq_tokenizer_open(const char *path, struct tcq_tokenizer **out,
                                           struct tcq_error *error);
TCQ_API void tcq_tokenizer_destroy(struct tcq_tokenizer *tokenizer);

/* One more than the largest token id. */
TCQ_API uint32_t tcq_tokenizer_count(const struct tcq_tokenizer *tokenizer);

/* How tcq_tokenizer_encode treats a text; flags to combine. */
enum {
    TCQ_ENCODE_SPECIAL = 1,  /* special tokens written in the text are such tokens */
    TCQ_ENCODE_WRAP = 2,     /* put the model's begin and end tokens around it */
    TCQ_ENCODE_CONTINUE = 4  /* the text follows another: no prefix for a beginning */
};

/* The tokens of nbytes of UTF-8.  *ids is freed with free() (and may be NULL
 * where *count is 0).  Errors: VALUE, with the offset, for text that is not
 * UTF-8; MEMORY. */
TCQ_API enum tcq_status tcq_tokenizer_encode(const struct tcq_tokenizer *tokenizer,
                                             const char *text, size_t nbytes, unsigned flags,
                                             uint32_t **ids, size_t *count,
                                             struct tcq_error *error);

/* The bytes of one token (not terminated, often a part of a character); an
 * empty text for an id that is no token.  Lives as long as the tokenizer. */
TCQ_API const char *tcq_tokenizer_bytes(const struct tcq_tokenizer *tokenizer, uint32_t id,
                                        size_t *nbytes);
/* The id of the token that is written `text`, or UINT32_MAX. */
TCQ_API uint32_t tcq_tokenizer_find(const struct tcq_tokenizer *tokenizer, const char *text);
/* A control token such as <|im_start|>. */
TCQ_API bool tcq_tokenizer_is_special(const struct tcq_tokenizer *tokenizer, uint32_t id);
/* A token after which nothing more is to be generated. */
TCQ_API bool tcq_tokenizer_is_end(const struct tcq_tokenizer *tokenizer, uint32_t id);
/* The model's chat template (Jinja), or NULL. */
TCQ_API const char *tcq_tokenizer_chat_template(const struct tcq_tokenizer *tokenizer);

/* Tokens to text, one at a time, whole characters only: a character whose bytes
 * come in several tokens is held back until it is complete, and bytes that can
 * never be one become U+FFFD.  Zero-initialise, set the first two fields. */
struct tcq_text_stream {
    const struct tcq_tokenizer *tokenizer;
    bool show_special; /* give control tokens as text, too */
    bool started;      /* internal from here on; true skips what a text's start drops */
    uint8_t held[4];
    size_t held_nbytes;
};

/* The text that becomes complete with token `id`, as malloc'ed bytes that the
 * caller frees; terminated, though it may hold zero bytes. */
TCQ_API enum tcq_status tcq_text_stream_next(struct tcq_text_stream *stream, uint32_t id,
                                             char **text, size_t *nbytes,
                                             struct tcq_error *error);
/* What is still held when no token follows: U+FFFD, or nothing. */
TCQ_API enum tcq_status tcq_text_stream_end(struct tcq_text_stream *stream, char **text,
                                            size_t *nbytes, struct tcq_error *error);

/* ------------------------------------------------------------------------ */
/* Chat                                                                      */
/* ------------------------------------------------------------------------ */

/* Forms of a conversation.  There is no Jinja engine: the form is recognised
 * by the control tokens that a template writes. */
enum tcq_chat_form {
    TCQ_CHAT_NONE = 0,
    TCQ_CHAT_CHATML,  /* <|im_start|>role\n ... <|im_end|>\n */
    TCQ_CHAT_LLAMA2,  /* [INST] <<SYS>> ... <</SYS>> ... [/INST] */
    TCQ_CHAT_LLAMA3,  /* <|start_header_id|>role<|end_header_id|>\n\n ... <|eot_id|> */
    TCQ_CHAT_MISTRAL  /* [INST] ... [/INST], the system's words before the first user's */
};

TCQ_API const char *tcq_chat_form_name(enum tcq_chat_form form);
/* The form of the tokenizer's template; NONE where there is no template or it
 * is of another kind. */
TCQ_API enum tcq_chat_form tcq_chat_form_of(const struct tcq_tokenizer *tokenizer);

struct tcq_chat_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
};

/* The tokens of a conversation, ready for the assistant's next words.  What
 * messages contain is never read as control tokens.  Where the template has a
 * system message of its own and none is given, that one is used.  *ids as in
 * tcq_tokenizer_encode.  Errors: ARGUMENT (form NONE, another role, an order of
 * roles that the form cannot write), VALUE, MEMORY. */
TCQ_API enum tcq_status tcq_chat_encode(const struct tcq_tokenizer *tokenizer,
                                        enum tcq_chat_form form,
                                        const struct tcq_chat_message *messages, size_t count,
                                        uint32_t **ids, size_t *id_count,
                                        struct tcq_error *error);

/* ------------------------------------------------------------------------ */
/* Model                                                                     */
/* ------------------------------------------------------------------------ */

/* The weights of a model.  Files stay mapped and weights are used where they
 * lie, a few rows of GGUF's blocks decoded at a time; norms and biases are copied.  A
 * file that is replaced (renamed over) meanwhile is read on; one that is cut off
 * raises SIGBUS where the system says so, as mapped files do. */
struct tcq_model;

struct tcq_model_options {
    enum tcq_numerics numerics;       /* of packed modules */
    enum tcq_activations activations; /* of packed modules */
    bool ignore_memory;               /* load even if memory seems too small */
};

struct tcq_model_info {
    const char *family; /* "llama", "mistral", "qwen2", "qwen3" */
    uint32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
    uint32_t positions; /* the longest context that the model was made for */
    uint64_t parameters;
    size_t stored_nbytes;  /* weights as stored, mapped from files */
    size_t owned_nbytes;   /* weights converted or prepared in memory */
    uint32_t packed_modules, affine_modules, dense_modules;
    double packed_bits;    /* bits per weight over the packed modules */
};

/* path: a folder, a safetensors file beside its config.json, or a GGUF file.
 * The model computes on the context's device, and is copied there if that is a GPU.
 * The context must outlive the model; options may be NULL.  A folder without a
 * tokenizer is fine.  Errors: those of tcq_source_open and tcq_tokenizer_open;
 * FORMAT for a missing tensor or one whose shape contradicts config.json;
 * UNSUPPORTED for a family or a member of config.json that would change the
 * result; MEMORY, before anything is loaded, where memory (of the device) is too
 * small: by how much. */
TCQ_API enum tcq_status tcq_model_load(struct tcq_context *context, const char *path,
                                       const struct tcq_model_options *options,
                                       struct tcq_model **out, struct tcq_error *error);
TCQ_API void tcq_model_destroy(struct tcq_model *model);
TCQ_API const struct tcq_model_info *tcq_model_get_info(const struct tcq_model *model);
/* NULL where the files have none.  Lives as long as the model. */
TCQ_API const struct tcq_tokenizer *tcq_model_tokenizer(const struct tcq_model *model);

/* One text in progress: a cache of keys and values, and working memory.  One
 * call at a time a session; sessions of one model may run in turns. */
struct tcq_session;

struct tcq_session_options {
    uint32_t context; /* positions of the cache; 0: the model's, at most 4096 */
    uint32_t batch;   /* positions at once; 0: up to 512, in at most 20 MiB of working memory */
    bool cache_f32;   /* keys and values in float32 instead of binary16; CPU only */
};

TCQ_API enum tcq_status tcq_session_create(const struct tcq_model *model,
                                           const struct tcq_session_options *options,
                                           struct tcq_session **out, struct tcq_error *error);
TCQ_API void tcq_session_destroy(struct tcq_session *session);
TCQ_API uint32_t tcq_session_context(const struct tcq_session *session);
TCQ_API size_t tcq_session_cache_nbytes(const struct tcq_session *session);
TCQ_API size_t tcq_session_work_nbytes(const struct tcq_session *session);
/* Positions that are in the cache. */
TCQ_API uint32_t tcq_session_position(const struct tcq_session *session);
/* Forget all positions from `position` on.  Errors: ARGUMENT beyond the end. */
TCQ_API enum tcq_status tcq_session_rewind(struct tcq_session *session, uint32_t position);

/* Which positions to give logits for. */
enum tcq_logits { TCQ_LOGITS_LAST = 0, TCQ_LOGITS_ALL, TCQ_LOGITS_NONE };

/* Append count tokens.  logits holds vocab float32 for the last position, or
 * count * vocab for all; the same bytes for every number of threads and however
 * a text is cut into calls of up to 32 tokens.  Errors: ARGUMENT (count 0, an id
 * outside the vocabulary, more positions than the context has: the session is
 * then unchanged). */
TCQ_API enum tcq_status tcq_session_forward(struct tcq_session *session, const uint32_t *tokens,
                                            size_t count, enum tcq_logits which, float *logits,
                                            struct tcq_error *error);

/* tcq_session_forward, then tcq_sampler_next on the logits of the last position.  On
 * a GPU the choice is made there, the same one, and only the token comes back.
 * Errors: those of both. */
struct tcq_sampler;
TCQ_API enum tcq_status tcq_session_next(struct tcq_session *session, struct tcq_sampler *sampler,
                                         const uint32_t *tokens, size_t count, uint32_t *token,
                                         struct tcq_error *error);

/* Called after each layer with its output [count][hidden], during forward. */
typedef void (*tcq_layer_fn)(void *user, uint32_t layer, size_t count, const float *hidden);
TCQ_API void tcq_session_watch(struct tcq_session *session, tcq_layer_fn watch, void *user);

/* ------------------------------------------------------------------------ */
/* Sampling                                                                  */
/* ------------------------------------------------------------------------ */

/* Choices of the next token.  Temperature 0 takes the likeliest (the smallest
 * id of several).  Otherwise logits are divided by the temperature and the
 * candidates cut down in this order: the top_k likeliest; those whose
 * probability is at least min_p times the highest; the likeliest that together
 * reach top_p. */
struct tcq_sampler_options {
    float temperature;
    uint32_t top_k; /* 0: all */
    float top_p;    /* 0 or 1: all */
    float min_p;
    uint64_t seed;
};

/* Errors: ARGUMENT for a negative or non-finite number, or one above 1 where
 * that makes no sense; MEMORY. */
TCQ_API enum tcq_status tcq_sampler_create(const struct tcq_sampler_options *options,
                                           uint32_t vocab, struct tcq_sampler **out,
                                           struct tcq_error *error);
TCQ_API void tcq_sampler_destroy(struct tcq_sampler *sampler);
/* The next token: the same on every processor for the same logits, options and number of
 * choices before.  Errors: VALUE where a logit is not a number. */
TCQ_API enum tcq_status tcq_sampler_next(struct tcq_sampler *sampler, const float *logits,
                                         uint32_t *token, struct tcq_error *error);

/* ------------------------------------------------------------------------ */
/* Evaluation                                                                */
/* ------------------------------------------------------------------------ */

struct tcq_evaluate_options {
    uint32_t context; /* tokens a window; 0: 512 */
    tcq_progress_fn progress; /* counts tokens; may be NULL */
    void *progress_user;
};

/* How well a model predicts a text, and how far it is from another model.  P is
 * the other model's distribution of the next token, Q this one's. */
struct tcq_evaluation {
    size_t windows, scored;   /* scored: positions whose next token is known */
    double perplexity;        /* exp of the mean of -ln Q(next) */
    bool compared;            /* the rest is set */
    double perplexity_against;
    double kl_mean, kl_p99, kl_max; /* of sum P ln(P/Q), in nats */
    double top1;              /* share of positions with the same likeliest token */
    float *kl;                /* [scored], along the text */
    uint32_t layers;
    double *layer_error;      /* [layers]: mean of |h_Q - h_P| / |h_P| after each layer */
};

/* Tokens are cut into windows of `context`, each evaluated for itself; where the
 * model's texts begin with a token, it is put before every window.  against (may
 * be NULL) must have the same vocabulary and sizes.  tcq_evaluation_free frees
 * what out holds.  Errors: ARGUMENT (fewer than 2 tokens, models that cannot be
 * compared), VALUE (logits that are not numbers), CANCELLED, MEMORY. */
TCQ_API enum tcq_status tcq_evaluate(const struct tcq_model *model,
                                     const struct tcq_model *against, const uint32_t *tokens,
                                     size_t count, const struct tcq_evaluate_options *options,
                                     struct tcq_evaluation *out, struct tcq_error *error);
TCQ_API void tcq_evaluation_free(struct tcq_evaluation *evaluation);

#ifdef __cplusplus
}
#endif

#endif
