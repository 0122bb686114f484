/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"
#include "tally.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>

#define PROGRESS_NS ((int64_t)(60 * NS_PER_SECOND))
/* Twice the scheduler's patience with a claim that does not bind. */
#define LONG_NS ((int64_t)(1200 * NS_PER_SECOND))

static struct report *add(struct report *ret, size_t *count, bool warning, const char *reason)
{
    struct report *r = &ret[(*count)++];
    r->warning = warning;
    r->reason = reason;
    return r;
}

static bool is_one_of(const char *text, const char *const *choices)
{
    for (; text && *choices; choices++)
        if (strcmp(text, *choices) == 0)
            return true;
    return false;
}

const char *report_reason(const struct api_fault *f, bool failed)
{
    static const char *const denied[] = {"CIS1401", "CIS1403", "CIS1701", "CIS1702", "CIS1904",
                                         "CIS1905", "CIS1906", "CIS1907", "CIS1908", NULL};
    static const char *const missing[] = {"CIS1404", "CIS1405", NULL};
    static const char *const changed[] = {"CIS1409", "CIS1503", NULL};
    static const char *const large[] = {"CIS1510", NULL};
    if (is_one_of(f->id, denied))
        return "SourceDenied";
    if (is_one_of(f->id, missing))
        return "SourceNotFound";
    if (is_one_of(f->id, changed))
        return "SourceChanged";
    if (is_one_of(f->id, large))
        return "SourceTooLarge";
    return failed ? "HydrationFailed" : "HydrationRetrying";
}

/* "gs://b/p/", or "3 prefixes" */
static void describe_source(const struct api_volume *v, char *ret, size_t size)
{
    struct err ignored;
    struct str uri = STR_NULL;
    auto_json j = NULL;
    snprintf(ret, size, "its source");
    if (!v->source || json_parse(str_of(v->source), "source", &j, &ignored) < 0)
        return;
    if (json_get_str(j, "uri", &uri, &ignored) == 0)
        snprintf(ret, size, "%.*s", (int)min_u64(uri.len, 100), uri.ptr);
    else if (json_count(json_at(j, "sources")) > 0)
        snprintf(ret, size, "%zu prefixes", json_count(json_at(j, "sources")));
}

static void report_started(const struct api_volume *v, struct report *r)
{
    const struct api_hydration *h = &v->status.hydration;
    char from[128], total[BYTES_TEXT_MAX];
    describe_source(v, from, sizeof from);
    snprintf(r->text, sizeof r->text, "%s in %" PRIu64 " objects from %s to node %s", bytes_text(h->bytes_total, total),
             h->objects_total, from, v->node);
}

static void report_progress(const struct api_volume *v, int64_t now_ns, struct report *r)
{
    const struct api_hydration *h = &v->status.hydration;
    char done[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX], left[TIME_TEXT_MAX] = "";
    uint64_t percent = h->bytes_total ? (uint64_t)(100.0 * (double)h->bytes_done / (double)h->bytes_total) : 0;
    bool known = h->eta_seconds > 0 && h->eta_seconds < UINT64_MAX / NS_PER_SECOND;
    const char *mode = api_volume_parameter(v, "hydration");
    bool waits = !mode || strcmp(mode, "eager") == 0;
    bool is_long = h->started_ns && now_ns - h->started_ns > LONG_NS && waits;
    if (known)
        duration_text(h->eta_seconds * NS_PER_SECOND, left);
    snprintf(r->text, sizeof r->text, "%" PRIu64 "%% (%s of %s) at %s/s%s%s%s%s", percent,
             bytes_text(h->bytes_done, done), bytes_text(h->bytes_total, total), bytes_text(h->bytes_per_second, rate),
             known ? ", " : "", left, known ? " left" : "",
             is_long ? "; with hydration 'gate' the pod is bound meanwhile" : "");
}

static void report_finished(const struct api_volume *v, struct report *r)
{
    const struct api_hydration *h = &v->status.hydration;
    const struct api_condition *verified = api_condition_find(&v->status.conditions, API_VERIFIED);
    bool says = verified && verified->status == API_TRUE && verified->message && *verified->message;
    char done[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX], took[TIME_TEXT_MAX], missing[64] = "";
    int64_t ns = h->finished_ns > h->started_ns ? h->finished_ns - h->started_ns : 1;
    double per_second = (double)h->bytes_done / ((double)ns / (double)NS_PER_SECOND);
    if (h->objects_missing)
        snprintf(missing, sizeof missing, ", without %" PRIu64 " objects that are gone", h->objects_missing);
    snprintf(r->text, sizeof r->text, "%s in %s (%s/s)%s%.100s%s", bytes_text(h->bytes_done, done),
             duration_text((uint64_t)ns, took), bytes_text((uint64_t)per_second, rate), says ? ", " : "",
             says ? verified->message : "", missing);
}

/* Whom the bucket refused: the Job does not know under whose name it works. */
static void describe_principal(const struct api_volume *v, char *ret, size_t size)
{
    struct err ignored;
    struct str name = STR_NULL;
    auto_json j = NULL;
    const char *ns = v->source_namespace ? v->source_namespace : v->claim_namespace ? v->claim_namespace : "?";
    snprintf(ret, size, "the identity of its source");
    if (!v->source || json_parse(str_of(v->source), "source", &j, &ignored) < 0)
        return;
    if (json_get_str(j, "serviceAccountName", &name, &ignored) == 0)
        snprintf(ret, size, "ns/%.60s/sa/%.*s", ns, (int)min_u64(name.len, 60), name.ptr);
    else if (json_get_str(j, "secretRef.name", &name, &ignored) == 0)
        snprintf(ret, size, "secret %.60s/%.*s", ns, (int)min_u64(name.len, 60), name.ptr);
    else if (json_get_str(j, "identity.method", &name, &ignored) == 0 && str_eq(name, STR("anonymous")))
        snprintf(ret, size, "anonymous");
}

/* An event is short, and what to do is said last: what only tells on whose way it was goes first. */
static const char *what_fits(const char *message)
{
    const char *colon;
    while (strlen(message) >= REPORT_TEXT_MAX && (colon = strstr(message, ": ")) != NULL) {
        const char *id = strstr(message, " (CIS");
        if (id && id < colon)
            break;
        message = colon + 2;
    }
    return message;
}

static void describe_fault(const struct api_volume *v, const struct api_fault *f, const char *reason, char *ret)
{
    const char *message = f->message ? f->message : "no reason is known";
    char more[160], whole[API_MESSAGE_MAX + sizeof more + 16];
    if (strcmp(reason, "SourceDenied") == 0) {
        describe_principal(v, more, sizeof more);
        snprintf(whole, sizeof whole, "denied to %s: %s", more, message);
        snprintf(ret, REPORT_TEXT_MAX, "%s", what_fits(whole));
        return;
    }
    /* The listing stopped where it was too large: what the whole needs is more than that. */
    uint64_t gib = tally_suggested_bytes(v->status.hydration.bytes_total) >> 30;
    if (strcmp(reason, "SourceTooLarge") == 0)
        snprintf(ret, REPORT_TEXT_MAX, "%.*s; suggestedSize is more than %" PRIu64 "Gi", (int)(REPORT_TEXT_MAX - 60),
                 message, gib);
    else
        snprintf(ret, REPORT_TEXT_MAX, "%s", what_fits(message));
}

/* The same fault is told once: what is tried again every minute gets another time at each try, and kube_event() holds
 * one reason down to one event a minute. */
static void report_fault(const struct api_volume *v, struct report_memo *m, struct report *ret, size_t *count)
{
    if (v->status.errors.count == 0)
        return;
    const struct api_fault *f = &v->status.errors.items[0];
    if (f->time_ns == m->fault_ns)
        return;
    m->fault_ns = f->time_ns;
    struct report *r = add(ret, count, true, report_reason(f, v->status.phase == API_PHASE_FAILED));
    describe_fault(v, f, r->reason, r->text);
}

static bool is_listed(unsigned phase)
{
    return phase == API_PHASE_HYDRATING || phase == API_PHASE_VERIFYING || phase == API_PHASE_READY;
}

size_t report_volume(const struct api_volume *v, struct report_memo *m, int64_t now_ns, struct report ret[REPORTS_MAX])
{
    size_t count = 0;
    bool is_finished = api_condition_is(&v->status.conditions, API_HYDRATED, API_TRUE);
    bool has_source = v->source != NULL && v->status.hydration.started_ns != 0;
    /* A controller that has just begun does not know what its predecessor told: what is over is not news. */
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
    if (is_finished) {
        m->finished = true;
        report_finished(v, add(ret, &count, false, "HydrationFinished"));
        return count;
    }
    report_fault(v, m, ret, &count);
    if (v->status.phase == API_PHASE_HYDRATING && now_ns - m->progress_ns >= PROGRESS_NS) {
        m->progress_ns = now_ns;
        report_progress(v, now_ns, add(ret, &count, false, "HydrationProgress"));
    }
    return count;
}

/* ---- export ------------------------------------------------------------------------------------------------------ */

/* The reason under which the state of an export is told; NULL: nobody needs to hear of it. */
static const char *export_state(const struct api_condition *c)
{
    static const char *const told[][2] = {
        {"Exporting", "ExportStarted"}, {"ExportFailed", "ExportFailed"}, {"ExportStalled", "ExportStalled"}};
    for (size_t i = 0; c && c->status == API_FALSE && i < countof(told); i++)
        if (strcmp(c->reason, told[i][0]) == 0)
            return told[i][1];
    return NULL;
}

bool report_export(const struct api_volume *v, struct report_memo *m, struct report *ret)
{
    const struct api_export *e = &v->status.export;
    const struct api_condition *c = api_condition_find(&v->status.conditions, API_EXPORTED);
    const struct report_memo before = *m;
    char bytes[BYTES_TEXT_MAX];
    m->export_seen = true;
    m->export_state = export_state(c);
    m->exported_ns = e->last_success_ns;
    bool exporting = c && m->export_state && strcmp(c->reason, "Exporting") == 0;
    bool is_bad = m->export_state && !exporting;
    /* One that was quicker than two looks at it is told by its end. */
    bool ended = before.export_seen && m->exported_ns > before.exported_ns;
    bool is_new = m->export_state && m->export_state != before.export_state && (before.export_seen || is_bad);
    if (!ended && !is_new)
        return false;
    *ret = (struct report){.warning = is_bad, .reason = is_new && !exporting ? m->export_state : "ExportFinished"};
    if (is_bad)
        snprintf(ret->text, sizeof ret->text, "%.200s; node %.40s", c->message ? c->message : "", v->node);
    else if (ended)
        snprintf(ret->text, sizeof ret->text, "%s in %" PRIu64 " files, each confirmed by the bucket",
                 bytes_text(e->done_bytes, bytes), e->done_objects);
    else {
        ret->reason = m->export_state;
        snprintf(ret->text, sizeof ret->text, "%s in %" PRIu64 " files are on their way from node %s",
                 bytes_text(e->pending_bytes, bytes), e->pending_objects, v->node);
    }
    return true;
}
