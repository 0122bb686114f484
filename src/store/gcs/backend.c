/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/endpoint.h"
#include "creds/trust.h"
#include "gcs.h"
#include "util/encode.h"
#include "util/env.h"

/* https://cloud.google.com/storage/docs/request-rate */
enum { READS_AT_FIRST = 5000 };

/* STORAGE_EMULATOR_HOST may have a scheme or not, as in the vendor's libraries. */
static char *choose_endpoint(const struct store_options *o)
{
    const char *emulator = env_get("STORAGE_EMULATOR_HOST");
    auto_sbuf b = SBUF(1024);
    char *text;
    if (o->endpoint && o->endpoint[0])
        sbuf_adds(&b, o->endpoint);
    else if (emulator)
        sbuf_addf(&b, "%s%s", strstr(emulator, "://") ? "" : "http://", emulator);
    else
        sbuf_adds(&b, "https://storage.googleapis.com");
    while (b.len && b.ptr[b.len - 1] == '/')
        sbuf_cut(&b, b.len - 1);
    return sbuf_take(&b, &text, ERR_IGNORED) < 0 ? str_dup(STR("")) : text;
}

static int gcs_open(struct store *s, const struct store_options *o, const struct uri *, struct err *err)
{
    struct gcs *g = s->self = xcalloc(1, sizeof *g);
    struct endpoint e;
    g->base = choose_endpoint(o);
    s->endpoint = str_dup(str_of(g->base));
    int r = endpoint_parse(str_of(g->base), &e, err);
    s->is_stranger = s->guard && trust_of(CREDS_GOOGLE, str_of(g->base), s->guard) == TRUST_NOBODY;
    if (r == 0 && str_ends(e.host, STR("googleapis.com")))
        s->reads_at_first = READS_AT_FIRST;
    if (r < 0)
        return r;
    if (o->billing && o->billing[0]) {
        auto_sbuf b = SBUF(1024);
        percent_encode(str_of(o->billing), &b);
        r = sbuf_take(&b, &g->billing, err);
    }
    return r < 0 ? r : store_open_creds(s, o, NULL, err);
}

static void gcs_close(struct store *s)
{
    struct gcs *g = s->self;
    if (!g)
        return;
    free(g->base);
    free(g->billing);
    free(g);
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

/* https://cloud.google.com/storage/docs/objects#naming; NULL: it may be one. */
static const char *refuses_name(const struct store_job *job)
{
    struct str key = job->args.write.key;
    bool is_new = job->op == STORE_OP_PUT || job->op == STORE_OP_BEGIN;
    if (!str_is_utf8(key))
        return "that are not UTF-8";
    return is_new && (str_find(key, '\n') >= 0 || str_find(key, '\r') >= 0) ? "with a line break" : NULL;
}

static void gcs_start(struct store_job *job)
{
    static const struct call_steps *const steps[STORE_OPS] = {
        [STORE_OP_GET] = &gcs_get_steps,     [STORE_OP_HEAD] = &gcs_head_steps,     [STORE_OP_LIST] = &gcs_list_steps,
        [STORE_OP_PUT] = &gcs_put_steps,     [STORE_OP_PART] = &gcs_part_steps,     [STORE_OP_ABORT] = &gcs_sweep_steps,
        [STORE_OP_SWEEP] = &gcs_sweep_steps, [STORE_OP_DELETE] = &gcs_delete_steps,
    };
    struct gcs_job *j = container_of(job, struct gcs_job, call.job);
    j->swept = j->count = j->group = 0;
    j->level = 0;
    j->confirmed.object.generation = 0;
    object_page_init(&j->page);
    sbuf_init(&j->token, 16 << 10);
    call_init(&j->call);
    const char *why = refuses_name(job);
    if (why) {
        err_set(&j->call.err, ERR_INVALID, "Google Cloud Storage accepts no keys %s", why);
        call_end(&j->call, err_advise(&j->call.err, CIS_KEY_UNSUPPORTED));
    } else if (job->op == STORE_OP_BEGIN) {
        gcs_begin_upload(&j->call);
    } else if (job->op == STORE_OP_COMPLETE) {
        gcs_complete(&j->call);
    } else {
        call_go(&j->call, steps[job->op]);
    }
}

static void gcs_release(struct store_job *job)
{
    struct gcs_job *j = container_of(job, struct gcs_job, call.job);
    object_page_done(&j->page);
    sbuf_done(&j->token);
    call_release(job);
}

const struct store_backend backend_gcs = {
    .caps = {.creds = CREDS_GOOGLE,
             .lists_sorted = true,
             .lists_from_any_key = true,
             .lists_best_digest = true,
             .conditions = STORE_CONDITIONS_HONOURED,
             .upload_digest = HASH_CRC32C,
             .part_bytes_min = 1,
             .parts_max = 10000},
    .permissions = {[STORE_OP_GET] = "storage.objects.get",
                    [STORE_OP_HEAD] = "storage.objects.get",
                    [STORE_OP_LIST] = "storage.objects.list",
                    [STORE_OP_PUT] = "storage.objects.create",
                    [STORE_OP_PART] = "storage.objects.create",
                    [STORE_OP_COMPLETE] = "storage.objects.create and storage.objects.get",
                    [STORE_OP_ABORT] = "storage.objects.delete",
                    [STORE_OP_SWEEP] = "storage.objects.list",
                    [STORE_OP_DELETE] = "storage.objects.delete"},
    .job_size = sizeof(struct gcs_job),
    .open = gcs_open,
    .close = gcs_close,
    .start = gcs_start,
    .stop = call_stop,
    .resume = call_resume,
    .release = gcs_release,
};
