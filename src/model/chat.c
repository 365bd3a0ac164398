/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations as tokens.  A template's form is told by the control tokens it
 * writes; each form is then written out here as its published template does.
 * Text between two control tokens is encoded in one piece, as it would be in
 * one string, but never searched for control tokens.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer.h"

const char *tcq_chat_form_name(enum tcq_chat_form form)
{
    static const char *const names[] = {"none", "chatml", "llama2", "llama3", "mistral"};
    size_t i = (size_t)form;
    return i < sizeof names / sizeof *names ? names[i] : "none";
}

static bool template_has(const struct tcq_tokenizer *tokenizer, const char *text)
{
    return tokenizer->chat_template && strstr(tokenizer->chat_template, text);
}

enum tcq_chat_form tcq_chat_form_of(const struct tcq_tokenizer *tokenizer)
{
    if (template_has(tokenizer, "<|im_start|>"))
        return TCQ_CHAT_CHATML;
    if (template_has(tokenizer, "<|start_header_id|>"))
        return TCQ_CHAT_LLAMA3;
    if (template_has(tokenizer, "[INST]"))
        return template_has(tokenizer, "<<SYS>>") ? TCQ_CHAT_LLAMA2 : TCQ_CHAT_MISTRAL;
    return TCQ_CHAT_NONE;
}

/* ------------------------------------------------------------------------ */
/* Writing                                                                   */
/* ------------------------------------------------------------------------ */

struct writer {
    const struct tcq_tokenizer *tokenizer;
    struct tcq_bytes text; /* since the last control token */
    struct tcq_ids ids;
    enum tcq_status status;
    struct tcq_error *error;
};

static void no_memory(struct writer *w)
{
    if (!w->status)
        w->status = tcq_error_memory(w->error, w->text.count, "a conversation");
}

static void flush(struct writer *w)
{
    uint32_t *ids = NULL;
    size_t count = 0;
    if (w->status || w->text.count == 0)
        return;
    w->status = tcq_tokenizer_encode(w->tokenizer, w->text.data, w->text.count,
                                     w->ids.count ? TCQ_ENCODE_CONTINUE : 0, &ids, &count, w->error);
    for (size_t i = 0; i < count && !w->status; i++)
        if (!tcq_ids_append(&w->ids, ids[i]))
            no_memory(w);
    tcq_free(ids);
    w->text.count = 0;
}

static void write_bytes(struct writer *w, const char *text, size_t nbytes)
{
    if (!w->status && !tcq_bytes_append(&w->text, text, nbytes))
        no_memory(w);
}

static void write_text(struct writer *w, const char *text)
{
    write_bytes(w, text, strlen(text));
}

static void write_trimmed(struct writer *w, const char *text)
{
    static const char white[] = " \t\n\r\v\f";
    size_t begin = strspn(text, white), end = strlen(text);
    while (end > begin && strchr(white, text[end - 1]))
        end--;
    write_bytes(w, text + begin, end - begin);
}

static void write_id(struct writer *w, uint32_t id)
{
    flush(w);
    if (!w->status && !tcq_ids_append(&w->ids, id))
        no_memory(w);
}

/* A control token; plain text where the tokenizer has no such token. */
static void write_control(struct writer *w, const char *text)
{
    uint32_t id = tcq_tokenizer_find(w->tokenizer, text);
    if (id == TCQ_NO_TOKEN)
        write_text(w, text);
    else
        write_id(w, id);
}

static void write_begin(struct writer *w)
{
    if (w->tokenizer->before_count)
        write_id(w, w->tokenizer->before[0]);
    else
        write_control(w, tcq_tokenizer_find(w->tokenizer, "<|begin_of_text|>") != TCQ_NO_TOKEN
                             ? "<|begin_of_text|>"
                             : "<s>");
}

/* ------------------------------------------------------------------------ */
/* Forms                                                                     */
/* ------------------------------------------------------------------------ */

static bool is_role(const struct tcq_chat_message *message, const char *role)
{
    return strcmp(message->role, role) == 0;
}

/* The system message that a ChatML template writes by itself: constant text
 * between its control tokens.  False where there is none. */
static bool find_default_system(const struct tcq_tokenizer *tokenizer, const char **text,
                                size_t *nbytes)
{
    static const char start[] = "<|im_start|>system";
    const char *at = tokenizer->chat_template;
    while (at && (at = strstr(at, start))) {
        at += sizeof start - 1;
        size_t newline = at[0] == '\n' ? 1 : strncmp(at, "\\n", 2) == 0 ? 2 : 0;
        const char *end = strstr(at, "<|im_end|>");
        /* A quote or a brace before the end means that a variable comes in. */
        if (newline && end && strcspn(at, "'\"{}") > (size_t)(end - at)) {
            *text = at + newline;
            *nbytes = (size_t)(end - *text);
            return true;
        }
    }
    return false;
}

static void write_chatml(struct writer *w, const struct tcq_chat_message *messages, size_t count)
{
    const char *text;
    size_t nbytes;
    if (!is_role(&messages[0], "system") && find_default_system(w->tokenizer, &text, &nbytes)) {
        write_control(w, "<|im_start|>");
        write_text(w, "system\n");
        write_bytes(w, text, nbytes);
        write_control(w, "<|im_end|>");
        write_text(w, "\n");
    }
    for (size_t i = 0; i < count; i++) {
        write_control(w, "<|im_start|>");
        write_text(w, messages[i].role);
        write_text(w, "\n");
        write_text(w, messages[i].content);
        write_control(w, "<|im_end|>");
        write_text(w, "\n");
    }
    write_control(w, "<|im_start|>");
    write_text(w, "assistant\n");
}

static void write_llama3_header(struct writer *w, const char *role)
{
    write_control(w, "<|start_header_id|>");
    write_text(w, role);
    write_control(w, "<|end_header_id|>");
    write_text(w, "\n\n");
}

static void write_llama3(struct writer *w, const struct tcq_chat_message *messages, size_t count)
{
    /* From 3.1 on a system message always stands first and begins with dates; this
     * is the day that the templates give where the caller names none. */
    bool dated = template_has(w->tokenizer, "Cutting Knowledge Date");
    bool system = is_role(&messages[0], "system");
    write_begin(w);
    if (dated || system) {
        write_llama3_header(w, "system");
        if (dated)
            write_text(w, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
        write_trimmed(w, system ? messages[0].content : "");
        write_control(w, "<|eot_id|>");
    }
    for (size_t i = system; i < count; i++) {
        write_llama3_header(w, messages[i].role);
        write_trimmed(w, messages[i].content);
        write_control(w, "<|eot_id|>");
    }
    write_llama3_header(w, "assistant");
}

/* [INST] forms: a user's and an assistant's turn alternate, and the system's
 * words stand at the head of the first (Llama 2) or before its content. */
static void write_inst(struct writer *w, const struct tcq_chat_message *messages, size_t count,
                       bool llama2)
{
    bool system = is_role(&messages[0], "system");
    bool before = llama2 || template_has(w->tokenizer, "[INST] ");
    bool after = llama2 || template_has(w->tokenizer, " [/INST]");
    if (!llama2)
        write_begin(w);
    for (size_t i = system; i < count; i++) {
        if (is_role(&messages[i], "assistant")) {
            write_text(w, before ? " " : "");
            write_trimmed(w, messages[i].content);
            write_text(w, llama2 ? " " : "");
            write_control(w, "</s>");
            continue;
        }
        if (llama2)
            write_begin(w);
        write_control(w, "[INST]");
        write_text(w, before ? " " : "");
        if (i == system && system) {
            write_text(w, llama2 ? "<<SYS>>\n" : "");
            write_text(w, messages[0].content);
            write_text(w, llama2 ? "\n<</SYS>>\n\n" : "\n\n");
        }
        if (llama2)
            write_trimmed(w, messages[i].content);
        else
            write_text(w, messages[i].content);
        write_text(w, after ? " " : "");
        write_control(w, "[/INST]");
    }
}

/* system? (user assistant)* user for [INST] forms; known roles for the others. */
static enum tcq_status check_messages(enum tcq_chat_form form,
                                      const struct tcq_chat_message *messages, size_t count,
                                      struct tcq_error *error)
{
    bool inst = form == TCQ_CHAT_LLAMA2 || form == TCQ_CHAT_MISTRAL;
    if (count == 0)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "chat: no messages");
    for (size_t i = 0; i < count; i++)
        if (!messages[i].role || !messages[i].content)
            return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "chat: message %zu: a null pointer", i);
    size_t system = is_role(&messages[0], "system");
    for (size_t i = 0; i < count; i++) {
        bool user = is_role(&messages[i], "user"), assistant = is_role(&messages[i], "assistant");
        if (!user && !assistant && !(is_role(&messages[i], "system") && (!inst || i == 0)))
            return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                                 "chat: message %zu has the role '%.40s'", i, messages[i].role);
        if (inst && i >= system && ((i - system) % 2 == 0) != user)
            return tcq_error_set(error, TCQ_ERROR_ARGUMENT,
                                 "chat: user and assistant must alternate, message %zu does not",
                                 i);
    }
    if (!is_role(&messages[count - 1], "user"))
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "chat: the last message must be a user's");
    return TCQ_OK;
}

enum tcq_status tcq_chat_encode(const struct tcq_tokenizer *tokenizer, enum tcq_chat_form form,
                                const struct tcq_chat_message *messages, size_t count,
                                uint32_t **ids, size_t *id_count, struct tcq_error *error)
{
    if (!tokenizer || !messages || !ids || !id_count || form == TCQ_CHAT_NONE)
        return tcq_error_set(error, TCQ_ERROR_ARGUMENT, "chat: a null pointer or no form");
    struct writer writer = {.tokenizer = tokenizer, .error = error};
    writer.status = check_messages(form, messages, count, error);
    if (!writer.status && form == TCQ_CHAT_CHATML)
        write_chatml(&writer, messages, count);
    else if (!writer.status && form == TCQ_CHAT_LLAMA3)
        write_llama3(&writer, messages, count);
    else if (!writer.status)
        write_inst(&writer, messages, count, form == TCQ_CHAT_LLAMA2);
    flush(&writer);
    tcq_bytes_free(&writer.text);
    if (writer.status) {
        tcq_ids_free(&writer.ids);
        return writer.status;
    }
    *ids = writer.ids.data;
    *id_count = writer.ids.count;
    return TCQ_OK;
}
