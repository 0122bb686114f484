/* SPDX-License-Identifier: Apache-2.0 */
#include "source_status.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>

uint64_t source_suggested_bytes(uint64_t bytes)
{
    uint64_t room = bytes / 20 + (UINT64_C(1) << 30);
    return bytes < UINT64_MAX - room ? bytes + room : UINT64_MAX;
}

/* ---- volumes ----------------------------------------------------------------------------------------------------- */

void source_status_begin(struct api_source *s)
{
    struct api_source_status *t = &s->status;
    t->volumes = (struct api_source_volumes){0};
    t->exports_failed = 0;
}

static void count(struct api_source_status *t, const struct api_volume *v)
{
    unsigned phase = v->status.phase;
    if (phase == API_PHASE_FAILED || phase == API_PHASE_LOST || phase == API_PHASE_EXPORT_FAILED)
        t->volumes.failed++;
    else if (phase == API_PHASE_READY || phase == API_PHASE_EXPORTING)
        t->volumes.ready++;
    else if (phase == API_PHASE_LISTING || phase == API_PHASE_HYDRATING || phase == API_PHASE_VERIFYING)
        t->volumes.hydrating++;
    else if (phase != API_PHASE_RELEASED)
        t->volumes.pending++;
}

/* The totals of an incomplete listing still grow: ignore them. */
static void add_listing(struct api_source_status *t, const struct api_volume *v)
{
    const struct api_hydration *h = &v->status.hydration;
    unsigned phase = v->status.phase;
    bool is_too_large = phase == API_PHASE_FAILED && h->has_listing;
    bool is_whole =
        phase == API_PHASE_HYDRATING || phase == API_PHASE_VERIFYING || phase == API_PHASE_READY || is_too_large;
    if (!is_whole || h->started_ns == 0 || (t->listing.known && h->started_ns < t->listing.listed_ns))
        return;
    t->listing.known = true;
    t->listing.listed_ns = h->started_ns;
    t->listing.objects = h->objects_total;
    t->listing.bytes = h->bytes_total;
    t->suggested_bytes = source_suggested_bytes(h->bytes_total);
    t->listing.has_details = h->has_listing;
    t->listing.excluded_objects = h->excluded_objects;
    t->listing.largest_object_bytes = h->largest_object_bytes;
    t->listing.seconds = h->listing_seconds;
    text_set(&t->listing.manifest_digest, str_of(h->manifest_digest));
}

static void set_error(struct api_source_error *e, const char *id, const char *code, const char *object,
                      const char *message, int64_t time_ns)
{
    text_set(&e->id, str_of(id));
    text_set(&e->code, str_of(code));
    text_set(&e->object, str_of(object));
    text_set(&e->message, str_of(message));
    e->time_ns = time_ns;
}

static void add_error(struct api_source_status *t, const struct api_volume *v)
{
    if (v->status.errors.count == 0 || v->status.errors.items[0].time_ns <= t->error.time_ns)
        return;
    const struct api_fault *f = &v->status.errors.items[0];
    set_error(&t->error, f->id, f->code, f->object, f->message, f->time_ns);
}

static void set_export_uri(struct api_source_status *t, const struct api_volume *v)
{
    auto_json j = NULL;
    if (v->source && json_parse(str_of(v->source), "source", &j, ERR_IGNORED) == 0)
        text_set(&t->export.uri, json_str_at(j, "export.uri"));
}

static bool is_export_failing(const struct api_volume *v)
{
    const struct api_conditions *all = &v->status.conditions;
    return api_condition_says(all, API_EXPORTED, API_FALSE, API_REASON_EXPORT_FAILED) ||
           api_condition_says(all, API_EXPORTED, API_FALSE, API_REASON_EXPORT_STALLED);
}

static void add_export(struct api_source_status *t, const struct api_volume *v)
{
    const struct api_export *e = &v->status.export;
    t->exports_failed += is_export_failing(v);
    if (e->last_success_ns <= t->export.time_ns)
        return;
    t->export.time_ns = e->last_success_ns;
    t->export.objects = e->done_objects;
    t->export.bytes = e->done_bytes;
    text_set(&t->export.volume, str_of(v->meta.name));
    set_export_uri(t, v);
}

void source_status_add(struct api_source *s, const struct api_volume *v)
{
    struct api_source_status *t = &s->status;
    count(t, v);
    add_listing(t, v);
    add_error(t, v);
    add_export(t, v);
    if (t->first_used_ns == 0)
        t->first_used_ns = v->meta.created_ns;
}

/* ---- conditions and phase ---------------------------------------------------------------------------------------- */

static void resolve(struct api_source_status *t, const struct spec *spec)
{
    struct uri uri = (spec_source_count(spec) ? spec_source_at(spec, 0).uri : spec->export.uri).view;
    if (!uri.scheme)
        return;
    text_set(&t->resolved.scheme, str_of(uri.scheme->name));
    text_set(&t->resolved.bucket, uri.bucket);
    text_set(&t->resolved.prefix, uri.prefix);
    text_set(&t->resolved.endpoint, str_of(spec->source.endpoint));
    text_set(&t->resolved.region, str_of(spec->source.region));
}

static void identify(struct api_source_status *t, const struct spec *spec, const char *ns)
{
    char principal[512];
    const char *name = spec_identity_name((enum spec_identity)spec->source.identity);
    if (spec->source.identity == IDENTITY_AUTO && spec->source.secret_name)
        name = "secret";
    text_set(&t->identity.method, str_of(name));
    text_set(&t->identity.principal, STR_NULL);
    if (!ns || spec->source.identity == IDENTITY_ANONYMOUS)
        return;
    if (spec->source.service_account)
        snprintf(principal, sizeof principal, "ns/%s/sa/%s", ns, spec->source.service_account);
    else if (spec->source.secret_name)
        snprintf(principal, sizeof principal, "ns/%s/secret/%s", ns, spec->source.secret_name);
    else
        return;
    text_set(&t->identity.principal, str_of(principal));
}

/* The same error once a minute is one error; its time is that of the first. */
static void set_own_error(struct api_source_status *t, const struct err *err, int64_t time_ns)
{
    char id[ERR_ID_TEXT_MAX], line[ERR_LINE_MAX];
    auto_mem char *message = str_dup(str_sub(str_of(err_line(err, line, sizeof line)), 0, API_MESSAGE_MAX));
    err_id_text(err->id, id);
    if (text_same(t->error.id, id) && text_same(t->error.message, message))
        return;
    set_error(&t->error, id[0] ? id : NULL, err_code_name(err->code), NULL, message, time_ns);
}

static void add_probe(struct api_source_status *t, const struct source_probe_result *p)
{
    if (p->answer.has_identity) {
        text_set(&t->identity.method, str_of(p->answer.method));
        text_set(&t->identity.principal, str_of(p->answer.principal));
        t->identity.expires_ns = p->answer.expires_ns;
    }
    if (p->err)
        set_own_error(t, p->err, p->time_ns);
}

/* One condition: False if `bad`, True if `good`, else Unknown: nothing has used the source yet. */
static void say(struct api_source *s, int64_t now_ns, const char *type, bool bad, const char *why, bool good)
{
    enum api_truth truth = bad ? API_FALSE : good ? API_TRUE : API_UNKNOWN;
    const char *message = bad && s->status.error.message ? s->status.error.message : "";
    api_condition_set(&s->status.conditions, type, truth,
                      bad    ? why
                      : good ? type
                             : "Pending",
                      s->meta.generation, now_ns, "%s", message);
}

/* A later listing clears the last error. So does a successful probe, unless a volume still fails: a volume may need
 * more permissions than the probe. */
static bool is_failing(const struct api_source_status *t, const struct source_probe_result *p)
{
    if (p->state == SOURCE_PROBED && p->err)
        return true;
    bool has_answered = p->state == SOURCE_PROBED && p->time_ns > t->error.time_ns;
    return t->error.time_ns > t->listing.listed_ns && !(has_answered && t->volumes.failed == 0);
}

static bool is_denied(enum err_kind kind)
{
    return kind == ERR_KIND_DENIED || kind == ERR_KIND_UNAUTHENTICATED || kind == ERR_KIND_IDENTITY_GONE;
}

static bool is_unreachable(enum err_kind kind)
{
    return kind == ERR_KIND_OBJECT_NOT_FOUND || kind == ERR_KIND_BUCKET_NOT_FOUND || kind == ERR_KIND_UNREACHABLE ||
           kind == ERR_KIND_ENDPOINT_DENIED;
}

/* The answer of the store as one word. */
static const char *reason_of(enum err_kind kind)
{
    static const char *const reasons[] = {[ERR_KIND_DENIED] = "Denied",
                                          [ERR_KIND_UNAUTHENTICATED] = "Denied",
                                          [ERR_KIND_IDENTITY_GONE] = "Denied",
                                          [ERR_KIND_OBJECT_NOT_FOUND] = "ObjectNotFound",
                                          [ERR_KIND_BUCKET_NOT_FOUND] = "BucketNotFound",
                                          [ERR_KIND_UNREACHABLE] = "Unreachable",
                                          [ERR_KIND_ENDPOINT_DENIED] = "EndpointDenied",
                                          [ERR_KIND_TOO_LARGE] = "SourceTooLarge",
                                          [ERR_KIND_EMPTY] = "SourceEmpty"};
    return kind < countof(reasons) && reasons[kind] ? reasons[kind] : "Failed";
}

const char *source_export_reason(const struct err *err)
{
    static const char *const reasons[] = {[ERR_KIND_DENIED] = "ExportDenied",
                                          [ERR_KIND_UNAUTHENTICATED] = "ExportDenied",
                                          [ERR_KIND_IDENTITY_GONE] = "ExportDenied",
                                          [ERR_KIND_BUCKET_NOT_FOUND] = "ExportBucketNotFound",
                                          [ERR_KIND_UNREACHABLE] = "ExportUnreachable"};
    enum err_kind kind = err_kind_of(err->id);
    return kind < countof(reasons) && reasons[kind] ? reasons[kind] : "ExportRefused";
}

/* Without a test of this run, an earlier result is kept. */
static void judge_export(struct api_source *s, const struct spec *spec, const struct source_probe_result *p,
                         int64_t now_ns)
{
    struct api_conditions *all = &s->status.conditions;
    const struct err *err = &p->answer.export_err;
    char line[ERR_LINE_MAX] = "";
    bool is_tested = p->state == SOURCE_PROBED && p->answer.tried_export;
    enum api_truth truth = !is_tested ? API_UNKNOWN : err->code ? API_FALSE : API_TRUE;
    const char *reason = !spec->export.uri.text ? "NothingToExport" : !is_tested ? "Pending" : API_EXPORTABLE;
    bool is_told = api_condition_find(all, API_EXPORTABLE) != NULL;
    if (is_tested && err->code) {
        reason = source_export_reason(err);
        err_line(err, line, sizeof line);
    }
    if (spec->export.uri.text ? is_tested || !is_told : is_told)
        api_condition_set(all, API_EXPORTABLE, truth, reason, s->meta.generation, now_ns, "%s", line);
}

/* The cause of a failed export is in the events of its claim; lastError is about reading. */
static void say_ready(struct api_source *s, int64_t now_ns, bool failing, const char *why, bool good)
{
    const struct api_condition *e = api_condition_find(&s->status.conditions, API_EXPORTABLE);
    if (s->status.exports_failed > 0 && !failing)
        api_condition_set(&s->status.conditions, API_READY, API_FALSE, "ExportFailed", s->meta.generation, now_ns,
                          "the exports of %" PRIu64 " volumes failed; see the events of their claims",
                          s->status.exports_failed);
    else if (e && e->status == API_FALSE && !failing)
        api_condition_set(&s->status.conditions, API_READY, API_FALSE, e->reason, s->meta.generation, now_ns, "%s",
                          e->message);
    else
        say(s, now_ns, API_READY, failing, why, good);
}

static bool is_unlistable(const struct api_source_status *t, bool failing)
{
    return failing && !t->listing.known && t->volumes.failed > 0;
}

static void judge(struct api_source *s, const struct source_probe_result *p, int64_t now_ns)
{
    struct api_source_status *t = &s->status;
    bool failing = is_failing(t, p);
    enum err_kind kind = failing ? err_kind_of_text(t->error.id) : ERR_KIND_OTHER;
    bool is_probed = p->state == SOURCE_PROBED && !p->err, is_listed = t->listing.known;
    bool has_identity = p->state == SOURCE_PROBED && p->answer.has_identity;
    bool has_answered = p->state == SOURCE_PROBED && p->answer.has_answered;
    const char *why = reason_of(kind);
    bool is_unlisted = kind == ERR_KIND_EMPTY || is_unlistable(t, failing);
    say(s, now_ns, API_IDENTITY_READY, is_denied(kind), why, is_listed || has_identity);
    say(s, now_ns, API_REACHABLE, is_unreachable(kind), why, is_listed || failing || has_answered);
    say(s, now_ns, API_LISTED, is_unlisted, why, is_listed);
    say_ready(s, now_ns, failing, why, is_listed || is_probed);
    if (!failing)
        set_error(&t->error, NULL, NULL, NULL, NULL, 0);
    failing |= t->exports_failed > 0 || api_condition_is(&t->conditions, API_EXPORTABLE, API_FALSE);
    t->phase = s->suspend               ? API_SOURCE_SUSPENDED
               : failing                ? API_SOURCE_DEGRADED
               : is_listed || is_probed ? API_SOURCE_READY
                                        : API_SOURCE_PENDING;
}

/* To train further from its own exports is a use of a source; a volume that grows by them is often a mistake. */
static void accept(struct api_source *s, const struct spec *spec, int64_t now_ns)
{
    const char *into = spec_exports_into(spec);
    char text[API_MESSAGE_MAX] = "";
    if (into)
        snprintf(text, sizeof text,
                 "export.uri is below %.300s: later volumes are filled with the exported files, too. If that is not "
                 "intended, export to another prefix, or exclude the files",
                 into);
    api_condition_set(&s->status.conditions, API_ACCEPTED, API_TRUE, into ? SOURCE_EXPORTS_INTO : "Valid",
                      s->meta.generation, now_ns, "%s", text);
}

void source_status_end(struct api_source *s, const struct source_probe_result *p, int64_t now_ns)
{
    struct err err;
    auto_spec spec = NULL;
    struct api_source_status *t = &s->status;
    bool is_changed = t->observed_generation != s->meta.generation;
    bool is_judged = t->phase != API_SOURCE_NONE && !is_changed;
    t->observed_generation = s->meta.generation;
    if (api_source_spec(s, &spec, &err) < 0) {
        char line[ERR_LINE_MAX];
        api_condition_set(&t->conditions, API_ACCEPTED, API_FALSE, "Invalid", s->meta.generation, now_ns, "%s",
                          err_line(&err, line, sizeof line));
        api_condition_set(&t->conditions, API_READY, API_FALSE, "Invalid", s->meta.generation, now_ns, "%s", line);
        set_own_error(t, &err, now_ns);
        t->phase = API_SOURCE_INVALID;
        return;
    }
    accept(s, spec, now_ns);
    resolve(t, spec);
    bool was_suspended = t->phase == API_SOURCE_SUSPENDED;
    if (p->state == SOURCE_PROBE_DUE && is_judged && was_suspended == s->suspend) {
        if (t->phase == API_SOURCE_READY)
            set_error(&t->error, NULL, NULL, NULL, NULL, 0);
        return;
    }
    if (p->state != SOURCE_PROBED || !t->identity.method || is_changed)
        identify(t, spec, s->meta.namespace);
    if (p->state == SOURCE_PROBED)
        add_probe(t, p);
    judge_export(s, spec, p, now_ns);
    judge(s, p, now_ns);
}
