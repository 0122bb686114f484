/* SPDX-License-Identifier: Apache-2.0 */
#include "tally.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>

static void set_text(char **to, const char *text)
{
    char *copy = text ? str_dup(str_of(text)) : NULL;
    free(*to);
    *to = copy;
}

static void set_view(char **to, struct str text)
{
    free(*to);
    *to = text.len ? str_dup(text) : NULL;
}

uint64_t tally_suggested_bytes(uint64_t bytes)
{
    uint64_t room = bytes / 20 + (UINT64_C(1) << 30);
    return bytes < UINT64_MAX - room ? bytes + room : UINT64_MAX;
}

/* ---- volumes ----------------------------------------------------------------------------------------------------- */

void tally_begin(struct api_source *s)
{
    struct api_source_status *t = &s->status;
    t->volumes_pending = t->volumes_hydrating = t->volumes_ready = t->volumes_failed = t->exports_failed = 0;
}

static void count(struct api_source_status *t, const struct api_volume *v)
{
    unsigned phase = v->status.phase;
    if (phase == API_PHASE_FAILED || phase == API_PHASE_LOST || phase == API_PHASE_EXPORT_FAILED)
        t->volumes_failed++;
    else if (phase == API_PHASE_READY || phase == API_PHASE_LAZY || phase == API_PHASE_EXPORTING)
        t->volumes_ready++;
    else if (phase == API_PHASE_LISTING || phase == API_PHASE_HYDRATING || phase == API_PHASE_VERIFYING)
        t->volumes_hydrating++;
    else if (phase != API_PHASE_RELEASED)
        t->volumes_pending++;
}

/* Until the listing is whole, its totals grow. */
static void add_listing(struct api_source_status *t, const struct api_volume *v)
{
    const struct api_hydration *h = &v->status.hydration;
    unsigned phase = v->status.phase;
    bool is_whole = phase == API_PHASE_HYDRATING || phase == API_PHASE_VERIFYING || phase == API_PHASE_READY;
    if (!is_whole || h->started_ns == 0 || (t->has_listing && h->started_ns < t->listed_ns))
        return;
    t->has_listing = true;
    t->listed_ns = h->started_ns;
    t->objects = h->objects_total;
    t->bytes = h->bytes_total;
    t->suggested_bytes = tally_suggested_bytes(h->bytes_total);
    t->has_listing_details = h->has_listing;
    t->excluded_objects = h->excluded_objects;
    t->largest_object_bytes = h->largest_object_bytes;
    t->listing_seconds = h->listing_seconds;
    set_text(&t->manifest_digest, h->manifest_digest);
}

static void add_error(struct api_source_status *t, const struct api_volume *v)
{
    if (v->status.errors.count == 0 || v->status.errors.items[0].time_ns <= t->error_ns)
        return;
    const struct api_fault *f = &v->status.errors.items[0];
    t->error_ns = f->time_ns;
    set_text(&t->error_id, f->id);
    set_text(&t->error_code, f->code);
    set_text(&t->error_object, f->object);
    set_text(&t->error_message, f->message);
}

static void set_export_uri(struct api_source_status *t, const struct api_volume *v)
{
    struct err ignored;
    struct str uri = STR_NULL;
    auto_json j = NULL;
    if (v->source && json_parse(str_of(v->source), "source", &j, &ignored) == 0 &&
        json_opt_str(j, "export.uri", &uri, &ignored) == 0)
        set_view(&t->export_uri, uri);
}

static bool is_export_failing(const struct api_volume *v)
{
    const struct api_condition *c = api_condition_find(&v->status.conditions, API_EXPORTED);
    return c && c->status == API_FALSE &&
           (strcmp(c->reason, "ExportFailed") == 0 || strcmp(c->reason, "ExportStalled") == 0);
}

static void add_export(struct api_source_status *t, const struct api_volume *v)
{
    const struct api_export *e = &v->status.export;
    t->exports_failed += is_export_failing(v);
    if (e->last_success_ns <= t->export_ns)
        return;
    t->export_ns = e->last_success_ns;
    t->export_objects = e->done_objects;
    t->export_bytes = e->done_bytes;
    set_text(&t->export_volume, v->meta.name);
    set_export_uri(t, v);
}

void tally_add(struct api_source *s, const struct api_volume *v)
{
    struct api_source_status *t = &s->status;
    count(t, v);
    add_listing(t, v);
    add_error(t, v);
    add_export(t, v);
    if (t->first_used_ns == 0)
        t->first_used_ns = v->meta.created_ns;
}

/* ---- what follows ------------------------------------------------------------------------------------------------ */

static void resolve(struct api_source_status *t, const struct spec *spec)
{
    struct spec_part first = spec_source_count(spec) ? spec_source_at(spec, 0) : (struct spec_part){0};
    const char *uri = first.uri ? first.uri : spec->export.uri, *scheme = spec_scheme(uri);
    if (!scheme)
        return;
    struct str rest = str_from(str_of(uri), strlen(scheme) + strlen("://"));
    ssize_t slash = str_find(rest, '/');
    set_text(&t->scheme, scheme);
    set_view(&t->bucket, slash < 0 ? rest : str_sub(rest, 0, (size_t)slash));
    set_view(&t->prefix, slash < 0 ? STR_NULL : str_from(rest, (size_t)slash + 1));
    set_text(&t->endpoint, spec->source.endpoint);
    set_text(&t->region, spec->source.region);
}

static void identify(struct api_source_status *t, const struct spec *spec, const char *ns)
{
    static const char *const names[] = {"auto", "gke", "wif", "irsa", "podIdentity", "metadata", "secret", "anonymous"};
    char principal[512];
    const char *name = names[spec->source.identity];
    if (spec->source.identity == IDENTITY_AUTO && spec->source.secret_name)
        name = "secret";
    set_text(&t->identity_method, name);
    set_text(&t->identity_principal, NULL);
    if (!ns || spec->source.identity == IDENTITY_ANONYMOUS)
        return;
    if (spec->source.service_account)
        snprintf(principal, sizeof principal, "ns/%s/sa/%s", ns, spec->source.service_account);
    else if (spec->source.secret_name)
        snprintf(principal, sizeof principal, "ns/%s/secret/%s", ns, spec->source.secret_name);
    else
        return;
    set_text(&t->identity_principal, principal);
}

static bool is_error(const struct api_source_status *t, const char *const *ids)
{
    for (; t->error_id && *ids; ids++)
        if (strcmp(t->error_id, *ids) == 0)
            return true;
    return false;
}

static bool same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* The same refusal once a minute is one error, since when it was first heard. */
static void add_probe_error(struct api_source_status *t, const struct tally_probe *p)
{
    char id[16] = "", line[ERR_LINE_MAX];
    auto_mem char *message = str_dup(str_sub(str_of(err_line(p->err, line, sizeof line)), 0, API_MESSAGE_MAX));
    if (p->err->id)
        snprintf(id, sizeof id, "CIS%04u", p->err->id);
    if (same(t->error_id, id) && same(t->error_message, message))
        return;
    t->error_ns = p->time_ns;
    set_text(&t->error_id, id[0] ? id : NULL);
    set_text(&t->error_code, err_code_name(p->err->code));
    set_text(&t->error_object, NULL);
    set_text(&t->error_message, message);
}

static void add_probe(struct api_source_status *t, const struct tally_probe *p)
{
    if (p->answer.has_identity) {
        set_text(&t->identity_method, p->answer.method);
        set_text(&t->identity_principal, p->answer.principal[0] ? p->answer.principal : NULL);
        t->identity_expires_ns = p->answer.expires_ns;
    }
    if (p->err)
        add_probe_error(t, p);
}

/* One condition: False if `bad`, True if `good`, else nobody has tried yet. */
static void say(struct api_source *s, int64_t now_ns, const char *type, bool bad, const char *why, bool good)
{
    enum api_truth truth = bad ? API_FALSE : good ? API_TRUE : API_UNKNOWN;
    const char *message = bad && s->status.error_message ? s->status.error_message : "";
    api_condition_set(&s->status.conditions, type, truth,
                      bad    ? why
                      : good ? "Answered"
                             : "NotTried",
                      s->meta.generation, now_ns, "%s", message);
}

/* Is the last error still the state of things? A listing that came after it has mended it; so has an answer, unless a
 * volume is still failing, which may ask for more than a probe does. */
static bool is_failing(const struct api_source_status *t, const struct tally_probe *p)
{
    if (p->state == TALLY_PROBED && p->err)
        return true;
    bool has_answered = p->state == TALLY_PROBED && p->time_ns > t->error_ns;
    return t->error_ns > t->listed_ns && !(has_answered && t->volumes_failed == 0);
}

/* An export that fails leaves its cause on its claim; the last error is of reading. */
static void say_ready(struct api_source *s, int64_t now_ns, bool failing, bool good)
{
    if (s->status.exports_failed > 0 && !failing)
        api_condition_set(&s->status.conditions, API_READY, API_FALSE, "ExportFailed", s->meta.generation, now_ns,
                          "volumes whose export failed: %" PRIu64 "; see the events of their claims",
                          s->status.exports_failed);
    else
        say(s, now_ns, API_READY, failing, "Failed", good);
}

static void judge(struct api_source *s, const struct tally_probe *p, int64_t now_ns)
{
    static const char *const identity[] = {"CIS1401", "CIS1403", "CIS1701", "CIS1702", "CIS1901", "CIS1904",
                                           "CIS1905", "CIS1906", "CIS1907", "CIS1908", "CIS1911", NULL};
    static const char *const reach[] = {"CIS1404", "CIS1405", "CIS1611", "CIS1612",
                                        "CIS1613", "CIS1614", "CIS1615", NULL};
    struct api_source_status *t = &s->status;
    bool failing = is_failing(t, p), denied = failing && is_error(t, identity);
    bool is_probed = p->state == TALLY_PROBED && !p->err, is_listed = t->has_listing;
    bool has_identity = p->state == TALLY_PROBED && p->answer.has_identity;
    bool has_answered = p->state == TALLY_PROBED && p->answer.has_answered;
    say(s, now_ns, API_IDENTITY_READY, denied, "Denied", is_listed || has_identity);
    say(s, now_ns, API_REACHABLE, failing && is_error(t, reach), "NoAnswer", is_listed || failing || has_answered);
    say(s, now_ns, API_LISTED, failing && !is_listed && t->volumes_failed > 0, "Failed", is_listed);
    say_ready(s, now_ns, failing, is_listed || is_probed);
    failing |= t->exports_failed > 0;
    t->phase = s->suspend               ? API_SOURCE_SUSPENDED
               : failing                ? API_SOURCE_DEGRADED
               : is_listed || is_probed ? API_SOURCE_READY
                                        : API_SOURCE_PENDING;
}

void tally_end(struct api_source *s, const struct tally_probe *p, int64_t now_ns)
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
        api_condition_set(&t->conditions, API_READY, API_FALSE, "Invalid", s->meta.generation, now_ns, "%s", err.text);
        t->phase = API_SOURCE_INVALID;
        return;
    }
    api_condition_set(&t->conditions, API_ACCEPTED, API_TRUE, "Valid", s->meta.generation, now_ns, "%s", "");
    resolve(t, spec);
    bool was_suspended = t->phase == API_SOURCE_SUSPENDED;
    if (p->state == TALLY_PROBE_DUE && is_judged && was_suspended == s->suspend)
        return;
    if (p->state != TALLY_PROBED || !t->identity_method || is_changed)
        identify(t, spec, s->meta.namespace);
    if (p->state == TALLY_PROBED)
        add_probe(t, p);
    judge(s, p, now_ns);
}
