/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional writes on stores that honour conditions and on those that do not. A store counts as honouring a
 * condition after it refused one (412): to the probe after the first object, or to a completion. Until then HEAD goes
 * directly before each write, and the condition is sent as well. */
#include "etag.h"
#include "s3.h"

static atomic_uchar *knowledge(const struct store_call *c)
{
    struct s3 *s3 = c->job.store->self;
    return &s3->known[c->job.op == STORE_OP_COMPLETE][c->job.args.write.condition == STORE_IF_SAME];
}

static bool has_condition(const struct store_call *c)
{
    return c->job.args.write.condition != STORE_IF_ANY && !s3_of((struct store_call *)(uintptr_t)c)->bare;
}

void s3_add_condition(struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    auto_sbuf quoted = SBUF(STORE_OBJECT_TAG_MAX + 2);
    if (!has_condition(c))
        return;
    if (a->write.condition == STORE_IF_SAME)
        sbuf_addf(&quoted, "\"%.*s\"", STR_FMT(etag_bare(a->write.match)));
    call_header(c, a->write.condition == STORE_IF_SAME ? "if-match" : "if-none-match",
                a->write.condition == STORE_IF_SAME ? sbuf_str(&quoted) : STR("*"));
}

/* ---- the writer of an object ------------------------------------------------------------------------------------- */

/* After a 412 the object may come from this upload: the reply to an earlier attempt was lost. */
static void owner_head_done(struct store_call *c, const struct store_reply *r)
{
    if (call_is_ours(c, r))
        call_end_as(c, r);
    else if (r->code == 0 || (r->status == 404 && c->job.args.write.condition == STORE_IF_SAME))
        call_end_exists(c);
    else if (r->status == 404)
        call_end_contradicted(c);
    else
        call_end_as(c, r);
}

/* ---- the HEAD directly before a write ---------------------------------------------------------------------------- */

static void head_refused(struct store_call *c, int status)
{
    call_end(c, err_fail(&c->err, ERR_UNSUPPORTED, CIS_STORE_UNSUPPORTED,
                         "the store %s conditions on a write, and HEAD of the object was denied: %d",
                         s3_of(c)->bare ? "refuses" : "ignores", status));
}

static void first_head_done(struct store_call *c, const struct store_reply *r)
{
    bool is_same = c->job.args.write.condition == STORE_IF_SAME;
    bool denied = r->status == 403 || r->status == 405 || r->status == 501;
    bool unsafe = s3_of(c)->bare || atomic_load(knowledge(c)) == S3_IGNORED;
    c->job.reply.heads++;
    c->after_head = true;
    if (is_same ? r->code == 0 && etag_is_same(r->object.etag, c->job.args.write.match) : r->status == 404)
        call_go(c, s3_of(c)->steps);
    else if (denied && !unsafe)
        call_go(c, s3_of(c)->steps); /* the condition alone has to do */
    else if (denied)
        head_refused(c, r->status);
    else
        owner_head_done(c, r);
}

bool s3_look_first(struct store_call *c)
{
    bool is_write = c->job.op == STORE_OP_PUT || c->job.op == STORE_OP_COMPLETE;
    if (!is_write || c->job.args.write.condition == STORE_IF_ANY)
        return false;
    enum s3_knowledge known = atomic_load(knowledge(c));
    s3_of(c)->bare = known == S3_REFUSED;
    if (known == S3_HONOURED && c->job.args.write.condition == STORE_IF_ABSENT)
        return false;
    call_head(c, first_head_done);
    return true;
}

/* ---- answers to a conditional write ------------------------------------------------------------------------------ */

bool s3_condition_failed(struct store_call *c, int status)
{
    const struct s3 *s3 = c->job.store->self;
    bool is_gone = status == 404 && c->job.op == STORE_OP_PUT && c->job.args.write.condition == STORE_IF_SAME;
    if (!has_condition(c))
        return false;
    if (status == 412 || is_gone) {
        if (status == 412)
            atomic_store(knowledge(c), S3_HONOURED);
        call_head(c, owner_head_done);
        return true;
    }
    /* 501 means that a part of the request is not supported, but not which one. */
    if (status == 501 && !atomic_load(&s3->conditional)) {
        s3_of(c)->bare = true;
        call_head(c, first_head_done);
        return true;
    }
    return false;
}

void s3_written(struct store_call *c)
{
    struct s3 *s3 = c->job.store->self;
    if (s3_of(c)->bare)
        atomic_store(knowledge(c), S3_REFUSED);
    else if (has_condition(c))
        atomic_store_explicit(&s3->conditional, true, memory_order_relaxed);
    enum s3_knowledge known = atomic_load(knowledge(c));
    bool guarded = c->job.args.write.condition == STORE_IF_ANY || known == S3_HONOURED;
    c->job.reply.guard = guarded ? GUARD_CONDITION : known == S3_UNKNOWN ? GUARD_UNPROVEN : GUARD_HEAD;
    call_end(c, 0);
}

bool s3_wants_probe(const struct store *s)
{
    const struct s3 *s3 = s->self;
    return atomic_load(&s3->known[false][false]) == S3_UNKNOWN;
}

bool s3_honours(const struct store *s, enum store_if condition, bool multipart)
{
    const struct s3 *s3 = s->self;
    return condition == STORE_IF_ANY || atomic_load(&s3->known[multipart][condition == STORE_IF_SAME]) == S3_HONOURED;
}
