/* SPDX-License-Identifier: Apache-2.0 */
/* kube_tool - the functions of src/kube on a line each, for the integration tests.
 *
 *     kube_tool [--kubeconfig FILE] [--qps N] [--burst N] [--queue N] [--body-max N]
 *
 * Reads one JSON object a line from stdin, {"do": VERB, "id": N, ...}, and writes JSON objects a line to stdout: the
 * answer with that id, and the events of informers and leases. Ends with stdin. */
#include "kube/client.h"
#include "kube/event.h"
#include "kube/informer.h"
#include "kube/lease.h"
#include "util/clock.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

static struct loop *loop;
static struct kube *kube;
static pthread_mutex_t print_lock = PTHREAD_MUTEX_INITIALIZER;

/* Lines that were read, and what was made from them, live as long as the tool: answers refer to them. */
static struct kept {
    struct kept *next;
    json *line;
} * kept;

static void *keep(size_t size, json *own_line)
{
    struct kept *k = xcalloc(1, sizeof *k + size);
    *k = (struct kept){.next = kept, .line = own_line};
    kept = k;
    return k + 1;
}

static void let_go(void)
{
    for (struct kept *next; kept; kept = next) {
        next = kept->next;
        json_free(kept->line);
        free(kept);
    }
}

static const char *text_at(const json *j, const char *name)
{
    struct str s = STR_NULL;
    json_as_str(json_member(j, name), &s);
    return s.ptr;
}

static struct str str_at(const json *j, const char *name)
{
    return str_of(text_at(j, name));
}

static uint64_t number_at(const json *j, const char *name, uint64_t otherwise)
{
    struct err err;
    return json_opt_u64(j, name, &otherwise, &err) < 0 ? 0 : otherwise;
}

static bool flag_at(const json *j, const char *name)
{
    bool value = false;
    struct err err;
    return json_opt_bool(j, name, &value, &err) == 0 && value;
}

static void print(json *own_j)
{
    auto_mem char *text = json_text(own_j, 0);
    pthread_mutex_lock(&print_lock);
    puts(text);
    fflush(stdout);
    pthread_mutex_unlock(&print_lock);
    json_free(own_j);
}

static json *answer_to(const json *line, int code, const struct err *err)
{
    json *j = json_new_object();
    json_set_u64(j, "id", number_at(line, "id", 0));
    json_set_str(j, "code", str_of(code < 0 ? err_code_name(err->code) : "OK"));
    if (code < 0) {
        json_set_str(j, "text", str_of(err->text));
        json_set_u64(j, "error", err->id);
    }
    return j;
}

static void answer_with(const json *line, int code, const struct err *err, json *own_object)
{
    json *j = answer_to(line, code, err);
    if (own_object)
        json_set(j, "object", own_object);
    print(j);
}

static struct kube_resource *resource_of(const json *line)
{
    static const struct kube_resource *const known[] = {&kube_config_maps,    &kube_pods,   &kube_service_accounts,
                                                        &kube_namespaces,     &kube_leases, &kube_token_reviews,
                                                        &kube_events_resource};
    struct kube_resource *r = keep(sizeof *r, NULL);
    struct str plural = str_at(line, "resource");
    for (size_t i = 0; i < countof(known); i++)
        if (str_eq(plural, str_of(known[i]->plural)))
            *r = *known[i];
    if (!r->plural)
        *r = (struct kube_resource){text_at(line, "group"), text_at(line, "version"), plural.ptr, text_at(line, "kind"),
                                    flag_at(line, "namespaced")};
    return r;
}

/* Has the loop do it, and waits until it did. */
static struct step {
    struct mail mail;
    sem_t over;
    void (*run)(const json *line);
    const json *line;
} step;

static void step_delivered(struct mail *m)
{
    struct step *s = container_of(m, struct step, mail);
    s->run(s->line);
    sem_post(&s->over);
}

static void on_loop(void (*run)(const json *line), const json *line)
{
    sem_init(&step.over, 0, 0);
    step.mail.deliver = step_delivered;
    step.run = run;
    step.line = line;
    loop_post(loop, &step.mail);
    while (sem_wait(&step.over) < 0)
        ;
    sem_destroy(&step.over);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum kube_verb verb;
} verbs[] = {{"get", KUBE_GET},
             {"list", KUBE_LIST},
             {"create", KUBE_CREATE},
             {"replace", KUBE_REPLACE},
             {"delete", KUBE_DELETE},
             {"json-patch", KUBE_JSON_PATCH},
             {"merge-patch", KUBE_MERGE_PATCH},
             {"apply", KUBE_APPLY}};

struct asked {
    struct mail mail;
    struct kube_request request;
    const json *line;
    unsigned pages, items;
};

static void on_page(void *ctx, json **own_items)
{
    struct asked *a = ctx;
    a->pages = own_items ? a->pages + 1 : 0;
    a->items = own_items ? a->items + (unsigned)json_count(*own_items) : 0;
}

static void on_done(void *ctx, struct kube_reply *r)
{
    struct asked *a = ctx;
    json *j = answer_to(a->line, r->code, &r->err);
    json_set_u64(j, "status", (uint64_t)r->status);
    json_set_u64(j, "pages", a->pages);
    json_set_u64(j, "items", a->items);
    if (r->object)
        json_set(j, "object", take(&r->object));
    print(j);
}

static void submit(struct mail *m)
{
    struct asked *a = container_of(m, struct asked, mail);
    struct kube_exchange *x = kube_submit(kube, &a->request);
    if (flag_at(a->line, "cancel"))
        kube_cancel(x);
}

static struct kube_lease *the_lease;

static bool do_request(const json *line)
{
    struct str verb = str_at(line, "do");
    for (size_t i = 0; i < countof(verbs); i++) {
        if (!str_eq(verb, str_of(verbs[i].name)))
            continue;
        struct asked *a = keep(sizeof *a, NULL);
        a->line = line;
        a->mail.deliver = submit;
        a->request =
            (struct kube_request){.verb = verbs[i].verb,
                                  .resource = resource_of(line),
                                  .ns = str_at(line, "ns"),
                                  .name = str_at(line, "name"),
                                  .subresource = text_at(line, "subresource"),
                                  .body = json_member(line, "body"),
                                  .field_manager = text_at(line, "manager"),
                                  .force = flag_at(line, "force"),
                                  .uid = str_at(line, "uid"),
                                  .resource_version = str_at(line, "version"),
                                  .propagation = flag_at(line, "foreground") ? KUBE_FOREGROUND : KUBE_BACKGROUND,
                                  .label_selector = text_at(line, "labels"),
                                  .field_selector = text_at(line, "fields"),
                                  .page_size = (unsigned)number_at(line, "page", 0),
                                  .on_page = flag_at(line, "by_page") ? on_page : NULL,
                                  .exempt = flag_at(line, "exempt"),
                                  .fence = flag_at(line, "fenced") ? the_lease : NULL,
                                  .timeout_ns = number_at(line, "timeout_ms", 0) * NS_PER_MS,
                                  .ctx = a,
                                  .on_done = on_done};
        loop_post(loop, &a->mail);
        return true;
    }
    return false;
}

static void do_call(const json *line)
{
    struct err err;
    json *object = NULL;
    struct kube_request r = {.verb = KUBE_GET,
                             .resource = resource_of(line),
                             .ns = str_at(line, "ns"),
                             .name = str_at(line, "name"),
                             .timeout_ns = number_at(line, "timeout_ms", 0) * NS_PER_MS};
    int code = kube_call(kube, &r, &object, &err);
    answer_with(line, code, &err, object);
}

static void do_stats(const json *line)
{
    json *j = answer_to(line, 0, NULL);
    json_set_u64(j, "requests", kube_requests_sent(kube));
    print(j);
}

static void do_stop(const json *line)
{
    kube_stop(kube);
    print(answer_to(line, 0, NULL));
}

/* ---- a lease ----------------------------------------------------------------------------------------------------- */

static void tell(const char *what, const char *value)
{
    json *j = json_new_object();
    json_set_str(j, "lease", str_of(what));
    json_set_str(j, "value", str_of(value));
    json_set_u64(j, "at_ms", clock_now_ns() / NS_PER_MS);
    print(j);
}

static void started(void *ctx)
{
    (void)ctx;
    tell("started", NULL);
}

static void stopped(void *ctx)
{
    (void)ctx;
    tell("stopped", NULL);
}

static void leader(void *ctx, struct str identity)
{
    (void)ctx;
    auto_mem char *name = str_dup(identity);
    tell("leader", name);
}

static void trouble(void *ctx, const struct err *err)
{
    (void)ctx;
    tell("trouble", err->text);
}

static void released(void *ctx)
{
    (void)ctx;
    tell("released", NULL);
}

static void lease_begin(const json *line)
{
    the_lease =
        kube_lease_new(kube, &(struct kube_lease_options){.ns = str_at(line, "ns"),
                                                          .name = str_at(line, "name"),
                                                          .identity = str_at(line, "identity"),
                                                          .duration_ns = number_at(line, "duration_ms", 0) * NS_PER_MS,
                                                          .retry_ns = number_at(line, "retry_ms", 0) * NS_PER_MS,
                                                          .on_started = started,
                                                          .on_stopped = stopped,
                                                          .on_leader = leader,
                                                          .on_error = trouble});
}

static void lease_release(const json *line)
{
    (void)line;
    kube_lease_release(the_lease, released);
}

/* The state of the lease for a caller that checks it before it acts. */
static void do_held(const json *line)
{
    json *j = answer_to(line, 0, NULL);
    json_set_u64(j, "at_ms", clock_now_ns() / NS_PER_MS);
    json_set_bool(j, "held", the_lease && kube_lease_is_held(the_lease));
    print(j);
}

/* ---- informers --------------------------------------------------------------------------------------------------- */

static struct kube_informer *the_informer;
static const json *informer_line;

static void told(const char *what, struct str key, const json *object)
{
    json *j = json_new_object();
    json_set_str(j, "informer", str_of(what));
    json_set_str(j, "key", key);
    if (object && !flag_at(informer_line, "quiet"))
        json_set(j, "object", json_copy_of(object));
    print(j);
}

static void added(void *ctx, struct str key, const json *object)
{
    (void)ctx;
    if (!flag_at(informer_line, "silent"))
        told("added", key, object);
}

static void updated(void *ctx, struct str key, const json *object)
{
    (void)ctx;
    told("updated", key, object);
}

static void deleted(void *ctx, struct str key, const json *object)
{
    (void)ctx;
    told("deleted", key, object);
}

static void synced(void *ctx)
{
    (void)ctx;
    told("synced", STR_NULL, NULL);
}

static void informer_failed(void *ctx, const struct err *err, uint64_t wait_ns)
{
    (void)ctx;
    json *j = json_new_object();
    json_set_str(j, "informer", STR("trouble"));
    json_set_str(j, "code", str_of(err_code_name(err->code)));
    json_set_str(j, "text", str_of(err->text));
    json_set_u64(j, "wait_ms", wait_ns / NS_PER_MS);
    print(j);
}

static void without_big(void *ctx, json *object)
{
    (void)ctx;
    json_remove(object, "data.big");
}

static void informer_begin(const json *line)
{
    informer_line = line;
    the_informer = kube_informer_new(
        kube, &(struct kube_informer_options){.resource = resource_of(line),
                                              .ns = str_at(line, "ns"),
                                              .label_selector = text_at(line, "labels"),
                                              .field_selector = text_at(line, "fields"),
                                              .indexes = {{"metadata.labels", "color"}},
                                              .transform = without_big,
                                              .silence_ns = number_at(line, "silence_ms", 0) * NS_PER_MS,
                                              .objects_max = number_at(line, "most", 0),
                                              .page_size = (unsigned)number_at(line, "page", 0),
                                              .on_added = added,
                                              .on_updated = updated,
                                              .on_deleted = deleted,
                                              .on_synced = synced,
                                              .on_error = informer_failed});
}

static void do_lookup(const json *line)
{
    json *j = answer_to(line, 0, NULL),
         *object = kube_informer_get(the_informer, str_at(line, "ns"), str_at(line, "name"));
    json_set_u64(j, "count", kube_informer_count(the_informer));
    json_set_bool(j, "synced", kube_informer_has_synced(the_informer));
    if (object)
        json_set(j, "object", object);
    print(j);
}

static int gather(void *ctx, struct str key, const json *object)
{
    (void)object;
    json_append_str(ctx, key);
    return 0;
}

static void do_each(const json *line)
{
    json *j = answer_to(line, 0, NULL), *keys = json_new_array();
    struct str color = str_at(line, "color");
    kube_informer_each(the_informer, color.len ? 0 : -1, color, gather, keys);
    json_set_u64(j, "count", color.len ? kube_informer_count_by(the_informer, 0, color) : json_count(keys));
    json_set(j, "keys", keys);
    print(j);
}

static bool has_value(void *ctx, const json *object)
{
    const json *line = ctx;
    if (flag_at(line, "gone"))
        return !object;
    return object && str_eq(json_member_str(json_at(object, "data"), "x"), str_at(line, "value"));
}

static void do_await(const json *line)
{
    struct err err;
    json *object = NULL;
    int code = kube_informer_wait(the_informer, str_at(line, "key"), number_at(line, "timeout_ms", 10000) * NS_PER_MS,
                                  has_value, (void *)line, &object, &err);
    answer_with(line, code, &err, object);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static struct kube_events *the_events;

static void do_event(const json *line)
{
    struct kube_ref about = {.resource = resource_of(line),
                             .ns = str_at(line, "ns"),
                             .name = str_at(line, "name"),
                             .uid = str_at(line, "uid")};
    /* The same resource each time: series differ by it. */
    about.resource = str_eq(str_at(line, "resource"), STR("namespaces")) ? &kube_namespaces : &kube_config_maps;
    for (uint64_t i = number_at(line, "times", 1); i > 0; i--)
        kube_event(the_events, &about, flag_at(line, "warning") ? KUBE_WARNING : KUBE_NORMAL, text_at(line, "reason"),
                   "%s", text_at(line, "message"));
    json *j = answer_to(line, 0, NULL);
    json_set_u64(j, "dropped", kube_events_dropped(the_events));
    print(j);
}

/* ---- the tool ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(const json *line);
    bool on_loop;
} others[] = {{"call", do_call, false},           {"stats", do_stats, false},       {"stop", do_stop, false},
              {"lease", lease_begin, true},       {"release", lease_release, true}, {"held", do_held, false},
              {"informer", informer_begin, true}, {"lookup", do_lookup, false},     {"each", do_each, false},
              {"await", do_await, false},         {"event", do_event, false}};

static void run_line(const json *line)
{
    if (do_request(line))
        return;
    for (size_t i = 0; i < countof(others); i++)
        if (str_eq(str_at(line, "do"), str_of(others[i].name))) {
            if (others[i].on_loop)
                on_loop(others[i].run, line);
            else
                others[i].run(line);
            return;
        }
    fprintf(stderr, "kube_tool: no such verb\n");
    exit(2);
}

static int begin(struct err *err)
{
    struct kube_events_options o = {.component = "kube-tool", .instance = STR("here"), .series_max = 50};
    the_events = kube_events_new(kube, &o);
    return loop_start(loop, err);
}

static int run(char **args)
{
    struct err err;
    auto_kube_config config = {0};
    struct kube_options options = {0};
    const char *kubeconfig = NULL;
    for (char **a = args; a[0] && a[1]; a += 2) {
        uint64_t n = 0;
        if (strcmp(a[0], "--kubeconfig") == 0)
            kubeconfig = a[1];
        else if (str_to_u64(str_of(a[1]), &n, &err) < 0)
            return -1;
        else if (strcmp(a[0], "--qps") == 0)
            options.qps = (unsigned)n;
        else if (strcmp(a[0], "--burst") == 0)
            options.burst = (unsigned)n;
        else if (strcmp(a[0], "--queue") == 0)
            options.queue_max = (unsigned)n;
        else if (strcmp(a[0], "--body-max") == 0)
            options.body_max = n;
    }
    if (kube_config_load(kubeconfig, &config, &err) < 0 || loop_new("loop/kube", &loop, &err) < 0 ||
        kube_new(loop, &config, &options, &kube, &err) < 0 || begin(&err) < 0) {
        char line[ERR_LINE_MAX];
        fprintf(stderr, "%s\n", err_line(&err, line, sizeof line));
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    struct err err;
    auto_mem char *line = NULL;
    size_t room = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (run(argv + 1) < 0)
        return 1;
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
        json *j;
        if (json_parse((struct str){line, (size_t)n}, "the line", &j, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            return 2;
        }
        keep(0, j);
        run_line(j);
    }
    loop_stop_and_join(loop);
    kube_lease_free(the_lease);
    kube_informer_free(the_informer);
    kube_events_free(the_events);
    kube_free(kube);
    loop_free(loop);
    let_go();
    return 0;
}
