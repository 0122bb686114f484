/* SPDX-License-Identifier: Apache-2.0 */
#include "volume_events.h"
#include "source_status.h"
#include "util/clock.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

/* A part of an event's text. With the longest message of a fault, all of them fit into an event. */
enum { URI_TEXT_MAX = 256, PRINCIPAL_MAX = 360 };
static_assert(API_MESSAGE_MAX + PRINCIPAL_MAX + 32 <= VOLUME_EVENT_TEXT_MAX, "an event has room for the whole message");
static_assert(ERR_LINE_MAX + 32 <= VOLUME_EVENT_TEXT_MAX, "likewise for an error");

#define PROGRESS_NS ((int64_t)(60 * NS_PER_SECOND))
/* Twice the time that the scheduler waits for a claim to bind. */
#define LONG_NS ((int64_t)(1200 * NS_PER_SECOND))

static struct populate_event *add(struct populate_event *ret, size_t *count, bool warning, const char *reason)
{
    struct populate_event *r = &ret[(*count)++];
    *r = (struct populate_event){.warning = warning, .reason = reason};
    return r;
}

const char *volume_event_reason(const struct api_fault *f, bool failed)
{
    static const char *const reasons[] = {[ERR_KIND_DENIED] = "SourceDenied",
                                          [ERR_KIND_ENDPOINT_DENIED] = "SourceDenied",
                                          [ERR_KIND_OBJECT_NOT_FOUND] = "SourceNotFound",
                                          [ERR_KIND_BUCKET_NOT_FOUND] = "SourceNotFound",
                                          [ERR_KIND_EMPTY] = "SourceEmpty",
                                          [ERR_KIND_CHANGED] = "SourceChanged",
                                          [ERR_KIND_TOO_LARGE] = "SourceTooLarge",
                                          [ERR_KIND_IDENTITY_GONE] = "SourceDenied"};
    enum err_kind kind = err_kind_of_text(f->id);
    const char *reason = kind < countof(reasons) ? reasons[kind] : NULL;
    return reason ? reason : failed ? "HydrationFailed" : "HydrationRetrying";
}

/* "gs://b/p/", or "3 prefixes" */
static void describe_source(const struct api_volume *v, char *ret, size_t size)
{
    auto_spec spec = NULL;
    snprintf(ret, size, "the source");
    if (api_volume_spec(v, &spec, ERR_IGNORED) < 0)
        return;
    if (spec->source.uri.text)
        snprintf(ret, size, "%.*s", STR_FMT(str_cut(str_of(spec->source.uri.text), size - 1)));
    else if (spec->source.sources.count > 0)
        snprintf(ret, size, "%zu prefixes", spec->source.sources.count);
}

static void report_started(const struct api_volume *v, struct populate_event *r)
{
    const struct api_hydration *h = &v->status.hydration;
    char from[URI_TEXT_MAX], total[BYTES_TEXT_MAX];
    describe_source(v, from, sizeof from);
    snprintf(r->text, sizeof r->text, "hydrating %s in %" PRIu64 " objects from %s on node %s",
             bytes_text(h->bytes_total, total), h->objects_total, from, v->node);
}

static void report_progress(const struct api_volume *v, int64_t now_ns, struct populate_event *r)
{
    const struct api_hydration *h = &v->status.hydration;
    char done[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX], left[TIME_TEXT_MAX] = "";
    uint64_t percent = h->bytes_total ? (uint64_t)(100.0 * (double)h->bytes_done / (double)h->bytes_total) : 0;
    bool known = h->eta_seconds > 0 && h->eta_seconds < UINT64_MAX / NS_PER_SECOND;
    bool waits = api_volume_choice(v, "hydration") == HYDRATION_EAGER;
    bool is_long = h->started_ns && now_ns - h->started_ns > LONG_NS && waits;
    if (known)
        duration_text(h->eta_seconds * NS_PER_SECOND, left);
    snprintf(r->text, sizeof r->text, "%" PRIu64 "%% (%s of %s) at %s/s%s%s%s%s", percent,
             bytes_text(h->bytes_done, done), bytes_text(h->bytes_total, total), bytes_text(h->bytes_per_second, rate),
             known ? ", " : "", left, known ? " left" : "",
             is_long ? "; set hydration: gate in the StorageClass to bind the claim before the data is complete" : "");
}

static void report_finished(const struct api_volume *v, struct populate_event *r)
{
    const struct api_hydration *h = &v->status.hydration;
    const struct api_condition *verified = api_condition_find(&v->status.conditions, API_VERIFIED);
    bool says = verified && verified->status == API_TRUE && verified->message && *verified->message;
    char done[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX], took[TIME_TEXT_MAX], missing[64] = "";
    int64_t ns = h->finished_ns > h->started_ns ? h->finished_ns - h->started_ns : 1;
    double per_second = (double)h->bytes_done / ((double)ns / (double)NS_PER_SECOND);
    if (h->objects_missing)
        snprintf(missing, sizeof missing, ", %" PRIu64 " objects were deleted from the bucket", h->objects_missing);
    snprintf(r->text, sizeof r->text, "hydrated %s in %s (%s/s)%s%.100s%s", bytes_text(h->bytes_done, done),
             duration_text((uint64_t)ns, took), bytes_text((uint64_t)per_second, rate), says ? ", " : "",
             says ? verified->message : "", missing);
}

/* There are fewer objects than shards. A source without any has failed before, or onEmpty allows it. */
static bool is_empty_shard(const struct api_volume *v)
{
    auto_spec spec = NULL;
    return v->status.hydration.objects_total == 0 && api_volume_spec(v, &spec, ERR_IGNORED) == 0 &&
           spec->source.shard_count > 1 && spec->source.on_empty != ON_EMPTY_ALLOW;
}

/* The identity that the bucket denied: the Job does not know it. */
static void describe_principal(const struct api_volume *v, char *ret, size_t size)
{
    auto_spec spec = NULL;
    const char *ns = v->source_namespace ? v->source_namespace : v->claim_namespace ? v->claim_namespace : "?";
    snprintf(ret, size, "the identity of the source");
    if (api_volume_spec(v, &spec, ERR_IGNORED) < 0)
        return;
    if (spec->source.service_account)
        snprintf(ret, size, "ns/%s/sa/%s", ns, spec->source.service_account);
    else if (spec->source.secret_name)
        snprintf(ret, size, "secret %s/%s", ns, spec->source.secret_name);
    else if (spec->source.identity == IDENTITY_ANONYMOUS)
        snprintf(ret, size, "%s", spec_identity_name(IDENTITY_ANONYMOUS));
}

/* The Job's message names flags of the command line. */
static void describe_size(const struct api_volume *v, const char *id, char *ret)
{
    const struct api_hydration *h = &v->status.hydration;
    char from[URI_TEXT_MAX], need[BYTES_TEXT_MAX], have[BYTES_TEXT_MAX];
    char suggested[API_QUANTITY_MAX];
    describe_source(v, from, sizeof from);
    snprintf(ret, VOLUME_EVENT_TEXT_MAX,
             "%s has %s in %" PRIu64 " objects, the volume %s (%s); delete this claim and create one with %s: "
             "a Pending claim cannot grow. Or select less with spec.include and exclude",
             from, bytes_text(h->bytes_total, need), h->objects_total, bytes_text(v->capacity_bytes, have), id,
             api_quantity_text(source_suggested_bytes(h->bytes_total), suggested));
}

static void describe_fault(const struct api_volume *v, const struct api_fault *f, const char *reason, char *ret)
{
    const char *message = f->message ? f->message : "the cause is unknown";
    char principal[PRINCIPAL_MAX];
    if (err_kind_of_text(f->id) == ERR_KIND_ENDPOINT_DENIED)
        snprintf(ret, VOLUME_EVENT_TEXT_MAX, "denied by the administrator's policy: %s", message);
    else if (strcmp(reason, "SourceDenied") == 0) {
        describe_principal(v, principal, sizeof principal);
        snprintf(ret, VOLUME_EVENT_TEXT_MAX, "access denied for %s: %s", principal, message);
    } else if (strcmp(reason, "SourceTooLarge") == 0)
        describe_size(v, f->id, ret);
    else
        snprintf(ret, VOLUME_EVENT_TEXT_MAX, "%s", message);
}

/* Reports a fault once. A retry every minute gives the fault a new time each, and kube_event() limits a reason to one
 * event a minute. */
static void report_fault(const struct api_volume *v, struct populate_event_state *m, struct populate_event *ret,
                         size_t *count)
{
    if (v->status.errors.count == 0)
        return;
    const struct api_fault *f = &v->status.errors.items[0];
    if (f->time_ns == m->fault_ns)
        return;
    m->fault_ns = f->time_ns;
    struct populate_event *r = add(ret, count, true, volume_event_reason(f, v->status.phase == API_PHASE_FAILED));
    describe_fault(v, f, r->reason, r->text);
}

/* The pod of a listing that takes long, or gets no answer, has no other event. */
static void report_listing(const struct api_volume *v, struct populate_event *r)
{
    char from[URI_TEXT_MAX];
    describe_source(v, from, sizeof from);
    snprintf(r->text, sizeof r->text, "listing %s on node %s: %" PRIu64 " objects so far", from, v->node,
             v->status.hydration.objects_total);
}

static bool is_listing_long(const struct api_volume *v, int64_t now_ns)
{
    return v->status.phase == API_PHASE_LISTING &&
           now_ns - v->status.hydration.started_ns >= (int64_t)VOLUME_LISTING_NS;
}

static bool is_listed(unsigned phase)
{
    return phase == API_PHASE_HYDRATING || phase == API_PHASE_VERIFYING || phase == API_PHASE_READY;
}

size_t volume_events_of_hydration(const struct api_volume *v, struct populate_event_state *m, int64_t now_ns,
                                  struct populate_event ret[VOLUME_EVENTS_MAX])
{
    size_t count = 0;
    bool is_finished = api_condition_is(&v->status.conditions, API_HYDRATED, API_TRUE);
    bool has_source = v->source != NULL && v->status.hydration.started_ns != 0;
    /* A new controller does not know which events were sent: do not repeat those of a finished hydration. */
    if (!m->seen && is_finished)
        m->started = m->finished = true;
    m->seen = true;
    if (!has_source || m->finished)
        return 0;
    if (!m->started && is_listed(v->status.phase)) {
        m->started = true;
        m->progress_ns = now_ns;
        report_started(v, add(ret, &count, false, "HydrationStarted"));
    }
    if (!m->listing && is_listing_long(v, now_ns)) {
        m->listing = true;
        report_listing(v, add(ret, &count, false, "SourceListing"));
    }
    if (is_finished) {
        m->finished = true;
        report_finished(v, add(ret, &count, false, "HydrationFinished"));
        if (is_empty_shard(v))
            snprintf(add(ret, &count, true, "ShardEmpty")->text, VOLUME_EVENT_TEXT_MAX,
                     "the shard has no object, and the volume is empty: set shard.count of the BucketSource to at most "
                     "the number of objects, or onEmpty: allow if that is intended");
        return count;
    }
    report_fault(v, m, ret, &count);
    if (v->status.phase == API_PHASE_HYDRATING && now_ns - m->progress_ns >= PROGRESS_NS) {
        m->progress_ns = now_ns;
        report_progress(v, now_ns, add(ret, &count, false, "HydrationProgress"));
    }
    return count;
}

const char *volume_failure(const struct api_volume *v)
{
    const struct api_condition *c = api_condition_find(&v->status.conditions, API_EXPORTED);
    const char *last = v->status.errors.count ? v->status.errors.items[0].id : NULL;
    enum err_kind kind = err_kind_of_text(last);
    bool is_refused = kind == ERR_KIND_DENIED || kind == ERR_KIND_UNAUTHENTICATED || kind == ERR_KIND_IDENTITY_GONE;
    if (is_refused)
        return "CredentialsRefused";
    if (v->status.phase == API_PHASE_FAILED)
        return "HydrationFailed";
    if (c && c->status == API_FALSE && strcmp(c->reason, API_REASON_EXPORT_FAILED) == 0)
        return "ExportFailed";
    return c && c->status == API_FALSE && strcmp(c->reason, API_REASON_EXPORT_STALLED) == 0 ? "ExportStalled" : NULL;
}

/* An order that is being released is deleted, too. */
bool volume_event_of_deletion(const struct api_volume *v, struct populate_event_state *m, struct populate_event *ret)
{
    bool is_new = v->meta.deleted_ns && !v->release_requested && !m->deletion;
    bool is_filled = api_condition_is(&v->status.conditions, API_HYDRATED, API_TRUE);
    m->deletion |= is_new;
    *ret = (struct populate_event){.warning = true, .reason = API_DELETION_HELD};
    snprintf(ret->text, sizeof ret->text, "CisternVolume %s was deleted by hand, which %s", v->meta.name,
             is_filled ? "releases nothing: delete the claim to release the volume"
                       : "ends its hydration: delete the claim and create it again");
    return is_new;
}

/* ---- export ------------------------------------------------------------------------------------------------------ */

/* Reason of the event for this state of an export; NULL: no event. */
static const char *export_state(const struct api_condition *c)
{
    static const char *const reasons[][2] = {{API_REASON_EXPORTING, "ExportStarted"},
                                             {API_REASON_EXPORT_FAILED, "ExportFailed"},
                                             {API_REASON_EXPORT_STALLED, "ExportStalled"}};
    for (size_t i = 0; c && c->status == API_FALSE && i < countof(reasons); i++)
        if (strcmp(c->reason, reasons[i][0]) == 0)
            return reasons[i][1];
    return NULL;
}

bool volume_event_of_export(const struct api_volume *v, struct populate_event_state *m, struct populate_event *ret)
{
    const struct api_export *e = &v->status.export;
    const struct api_condition *c = api_condition_find(&v->status.conditions, API_EXPORTED);
    const struct populate_event_state before = *m;
    char bytes[BYTES_TEXT_MAX];
    m->export_seen = true;
    m->export_state = export_state(c);
    m->exported_ns = e->last_success_ns;
    bool exporting = c && m->export_state && strcmp(c->reason, API_REASON_EXPORTING) == 0;
    bool is_bad = m->export_state && !exporting;
    /* An export that ends between two reconciles gets an event for its end only. */
    bool ended = before.export_seen && m->exported_ns > before.exported_ns;
    bool is_new = m->export_state && m->export_state != before.export_state && (before.export_seen || is_bad);
    if (!ended && !is_new)
        return false;
    *ret =
        (struct populate_event){.warning = is_bad, .reason = is_new && !exporting ? m->export_state : "ExportFinished"};
    if (is_bad)
        snprintf(ret->text, sizeof ret->text, "node %s: %s", v->node, c->message ? c->message : "");
    else if (ended)
        snprintf(ret->text, sizeof ret->text, "exported %s in %" PRIu64 " files, all confirmed by the bucket",
                 bytes_text(e->done_bytes, bytes), e->done_objects);
    else {
        ret->reason = m->export_state;
        snprintf(ret->text, sizeof ret->text, "exporting %s in %" PRIu64 " files from node %s",
                 bytes_text(e->pending_bytes, bytes), e->pending_objects, v->node);
    }
    return true;
}

bool volume_event_of_export_test(const struct err *result, struct populate_event_state *m, struct populate_event *ret)
{
    const char *reason = result->code ? source_export_reason(result) : NULL;
    char line[ERR_LINE_MAX];
    bool is_new = reason && m->export_test != reason;
    m->export_test = reason;
    if (!is_new)
        return false;
    *ret = (struct populate_event){.warning = true, .reason = reason};
    snprintf(ret->text, sizeof ret->text, "an export would fail now: %s", err_line(result, line, sizeof line));
    return true;
}
