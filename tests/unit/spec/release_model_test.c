/* SPDX-License-Identifier: Apache-2.0 */
/* All interleavings of the release path, breadth first, over the very functions that the code decides by
 * (spec/release_state.h). Actors: a pod, the driver, exports (children or Jobs, late ones too), two controllers, an
 * administrator, a disk. Any of them may stop, be late or lose its answer at any point: a lost answer is a step that is
 * asked for again, which every state allows.
 *
 * The invariants:
 *   1. Bytes selected for export are destroyed only after the bucket confirmed them or an administrator gave them up.
 *   2. After a withdrawal was accepted nothing is destroyed.
 *   3. DeleteVolume is answered with OK only of such a volume, too: an absent disk may come back.
 *   4. A release that no fact holds comes to its end.
 * That the checker bites: each mutation of the functions below must break one of them. */
#include "spec/release_state.h"
#include "unit.h"
#include "util/macro.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRITES_MAX = 2, PUBLISHES_MAX = 3, STATES_MAX = 1 << 24, NO_STEP = 255 };

enum exporting { EXPORT_NONE, EXPORT_STARTING, EXPORT_RUNNING };

/* The state of the model, in bytes: a state is its own key. */
struct state {
    /* the volume */
    uint8_t written;   /* how many writes the data holds */
    uint8_t confirmed; /* how many of them the bucket has confirmed */
    uint8_t mounted, destroyed, given_up;
    /* its disk */
    uint8_t absent, has_record, stage, writes, made_up, numbers, uncounted;
    uint8_t verdict, verdict_writes, verdict_running;
    /* the export */
    uint8_t exporting, export_writes, export_snapshot;
    /* the driver, with a step decided and not taken yet */
    uint8_t step, step_discard;
    /* the order, at the API server */
    uint8_t requested, discard, committed, answered, told_written;
    /* the node's copy of it */
    uint8_t seen_requested, seen_discard, seen_committed;
    /* each controller: has it read an order that it may withdraw? */
    uint8_t may_withdraw[2];
    /* bounds */
    uint8_t publishes, losses, releases;
};

/* ---- the code under test, and its mutations ---------------------------------------------------------------------- */

#define EACH_MUTATION(M)                                                                                               \
    M(AS_IT_IS, "as it is")                                                                                            \
    M(IGNORE_WRITE_COUNT, "a table that ignores the write count")                                                      \
    M(COUNT_AFTER_MOUNT, "a publish that is counted after its mount")                                                  \
    M(COUNT_AT_END_OF_EXPORT, "a verdict that takes the count at the export's end")                                    \
    M(COUNT_WITHOUT_SEAL, "a verdict that takes the count of a volume that is not sealed")                             \
    M(IGNORE_ABSENT_POOL, "a table that takes an absent pool for a missing volume")                                    \
    M(IGNORE_MISSING_RECORD, "a missing record that counts as never written")                                          \
    M(MAKE_UP_ONE_WRITE, "a missing record that counts as one write")                                                  \
    M(COUNT_FROM_RECORD, "a count that begins again with a lost record")                                               \
    M(IGNORE_MOUNTS, "a table that ignores mounts")                                                                    \
    M(COMMIT_BY_COPY, "a node that commits by its copy of the order")                                                  \
    M(NO_COMMIT, "a table that moves to the trash without a commit")                                                   \
    M(WITHDRAW_UNCONDITIONALLY, "a controller that withdraws what is committed")                                       \
    M(COMMIT_OTHER_DISCARD, "a commit that does not compare the word to discard")                                      \
    M(NEVER_SEAL, "a driver that does not seal")
#define AS_VALUE(value, name) value,
#define AS_NAME(value, name) name,
enum mutation { EACH_MUTATION(AS_VALUE) MUTATIONS };
static const char *const mutation_names[MUTATIONS] = {EACH_MUTATION(AS_NAME)};

struct model {
    enum mutation mutation;
    bool in_cluster;
    bool has_policy;
    bool discards; /* an administrator may give up */
};

static const struct model *model;

static bool mutated(enum mutation m)
{
    return model->mutation == m;
}

static enum release_step decide(struct release_facts f)
{
    if (mutated(IGNORE_WRITE_COUNT) && f.verdict_writes > 0)
        f.verdict_writes = f.writes;
    if (mutated(IGNORE_ABSENT_POOL) && f.place == RELEASE_ABSENT)
        f.place = RELEASE_MISSING;
    if (mutated(IGNORE_MOUNTS))
        f.in_use = false;
    if (mutated(NO_COMMIT))
        f.is_committed = true;
    return release_next_step(&f);
}

/* A number that no verdict has: a record that is made up counts as written, and differs from every other. */
enum { MADE_UP = 100 };

static uint8_t writes_of(const struct state *s)
{
    if (s->has_record)
        return s->writes;
    if (s->written == 0 || mutated(IGNORE_MISSING_RECORD))
        return 0;
    return mutated(MAKE_UP_ONE_WRITE) ? 1 : (uint8_t)(MADE_UP + s->made_up);
}

static enum release_stage stage_of(const struct state *s)
{
    return s->has_record ? s->stage : RELEASE_OPEN;
}

static struct release_facts facts_of(const struct state *s)
{
    struct release_facts f = {.in_cluster = model->in_cluster,
                              .is_withdrawn = model->in_cluster && !s->seen_requested,
                              .is_committed = !model->in_cluster || s->seen_committed,
                              .may_discard = s->seen_discard,
                              .has_policy = model->has_policy};
    f.place = s->absent ? RELEASE_ABSENT : s->destroyed ? RELEASE_MISSING : RELEASE_HERE;
    if (f.place == RELEASE_ABSENT)
        f.writes = !model->in_cluster || s->told_written; /* of a disk that is not here, only the order knows */
    if (f.place != RELEASE_HERE)
        return f;
    f.stage = stage_of(s);
    f.writes = writes_of(s);
    f.in_use = s->mounted;
    f.at_work = s->exporting == EXPORT_RUNNING;
    f.verdict = s->verdict_running ? RELEASE_UNTRIED : (enum release_verdict)s->verdict;
    f.verdict_writes = s->verdict_writes;
    return f;
}

/* ---- destroyed data and violated invariants ---------------------------------------------------------------------- */

static bool is_safe(const struct state *s)
{
    return !model->has_policy || s->written == s->confirmed || s->given_up;
}

static const char *broken(const struct state *s)
{
    if (s->destroyed && !is_safe(s))
        return "bytes were destroyed without confirmation or discard";
    if (s->destroyed && model->in_cluster && !s->requested)
        return "a volume was destroyed whose release was withdrawn";
    if (s->answered && !is_safe(s))
        return "DeleteVolume answered OK for bytes without confirmation or discard";
    return NULL;
}

/* ---- actions: each returns whether it could happen in *s, which it changes --------------------------------------- */

/* A record is written as a whole: what was made up for a lost one is durable from then on. */
static void write_record(struct state *s, enum release_stage stage, uint8_t writes)
{
    if (!s->has_record)
        s->made_up++;
    s->has_record = 1;
    s->stage = (uint8_t)stage;
    s->writes = writes;
}

static bool is_here(const struct state *s)
{
    return !s->absent && !s->destroyed;
}

/* Never one that was there before, whatever became of the record: the code takes the time. */
static uint8_t next_number(struct state *s)
{
    if (mutated(COUNT_FROM_RECORD) || mutated(MAKE_UP_ONE_WRITE))
        return (uint8_t)(writes_of(s) + 1);
    return ++s->numbers;
}

/* The claim of the volume keeps publishes out while a step is decided and taken. */
static bool publishes(struct state *s)
{
    if (!is_here(s) || s->answered || s->mounted || s->step != NO_STEP || s->publishes == PUBLISHES_MAX)
        return false;
    enum release_admission a = release_admit(stage_of(s), model->in_cluster, s->exporting == EXPORT_RUNNING);
    if (a == RELEASE_REFUSE || a == RELEASE_REFUSE_NOW)
        return false;
    s->publishes++;
    s->uncounted = mutated(COUNT_AFTER_MOUNT);
    write_record(s, RELEASE_OPEN, s->uncounted ? writes_of(s) : next_number(s));
    s->mounted = 1;
    s->told_written = 1;
    return true;
}

/* Only in the mutation: between the mount and the count the driver may die. */
static bool counts_late(struct state *s)
{
    if (!s->uncounted || !s->mounted || !s->has_record)
        return false;
    s->uncounted = 0;
    s->writes = next_number(s);
    return true;
}

static bool pod_writes(struct state *s)
{
    if (!s->mounted || s->absent || s->written == WRITES_MAX)
        return false;
    s->written++;
    return true;
}

static bool pod_leaves(struct state *s)
{
    if (!s->mounted || s->step != NO_STEP)
        return false;
    s->mounted = 0;
    return true;
}

static bool driver_decides(struct state *s)
{
    if (s->step != NO_STEP || s->answered || (!model->in_cluster && !s->requested))
        return false;
    if (model->in_cluster && !s->seen_requested && stage_of(s) == RELEASE_OPEN)
        return false;
    struct release_facts f = facts_of(s);
    s->step = (uint8_t)decide(f);
    s->step_discard = f.may_discard;
    return true;
}

static bool order_is_as_seen(const struct state *s)
{
    if (mutated(COMMIT_BY_COPY))
        return true;
    return s->requested && (s->discard == s->step_discard || mutated(COMMIT_OTHER_DISCARD));
}

static bool driver_steps(struct state *s)
{
    enum release_step step = s->step;
    if (s->step == NO_STEP)
        return false;
    s->step = NO_STEP;
    switch (step) {
    case RELEASE_REOPEN:
        write_record(s, RELEASE_OPEN, writes_of(s));
        break;
    case RELEASE_CLOSE:
        write_record(s, RELEASE_CLOSED, writes_of(s));
        break;
    case RELEASE_SEAL:
        write_record(s, mutated(NEVER_SEAL) ? stage_of(s) : RELEASE_SEALED, writes_of(s));
        break;
    case RELEASE_COMMIT: /* in one transaction with the server's check that it is still asked for */
        if (order_is_as_seen(s))
            s->committed = s->seen_committed = 1;
        break;
    case RELEASE_TRASH:
        s->destroyed = 1;
        break;
    case RELEASE_GONE:
        s->answered = 1;
        break;
    case RELEASE_EXPORT_DUE:
    case RELEASE_EXPORT_FAILED:
        if (s->exporting == EXPORT_NONE)
            s->exporting = EXPORT_STARTING;
        break;
    default:
        break;
    }
    return true;
}

static bool driver_dies(struct state *s)
{
    if (s->step == NO_STEP)
        return false;
    s->step = NO_STEP;
    return true;
}

/* A Job may be late, or be one of an earlier release: it starts whenever it does. */
static bool export_starts(struct state *s)
{
    if (s->exporting != EXPORT_STARTING || !is_here(s))
        return false;
    s->exporting = EXPORT_RUNNING;
    uint8_t writes = s->has_record ? s->writes : 0;
    enum release_stage stage = mutated(COUNT_WITHOUT_SEAL) || mutated(NEVER_SEAL) ? RELEASE_SEALED : stage_of(s);
    s->export_writes = (uint8_t)release_verdict_writes(stage, writes);
    s->export_snapshot = s->written;
    s->verdict_running = 1;
    s->verdict = RELEASE_UNTRIED;
    s->verdict_writes = s->export_writes;
    return true;
}

static bool export_ends(struct state *s, enum release_verdict v)
{
    if (s->exporting != EXPORT_RUNNING || !is_here(s))
        return false;
    s->exporting = EXPORT_NONE;
    s->verdict_running = 0;
    s->verdict = (uint8_t)v;
    s->verdict_writes = mutated(COUNT_AT_END_OF_EXPORT) && s->has_record ? s->writes : s->export_writes;
    if (v == RELEASE_CONFIRMED && s->export_snapshot > s->confirmed)
        s->confirmed = s->export_snapshot;
    s->export_writes = s->export_snapshot = 0;
    return true;
}

static bool export_succeeds(struct state *s)
{
    return export_ends(s, RELEASE_CONFIRMED);
}
static bool export_fails(struct state *s)
{
    return export_ends(s, RELEASE_FAILED);
}

/* Its verdict says "running" and no process runs it. */
static bool export_dies(struct state *s)
{
    if (s->exporting == EXPORT_NONE)
        return false;
    s->exporting = EXPORT_NONE;
    s->export_writes = s->export_snapshot = 0;
    return true;
}

static bool disk_goes(struct state *s)
{
    if (s->absent || s->mounted || s->step != NO_STEP || s->losses)
        return false;
    s->absent = 1;
    s->losses++;
    s->exporting = EXPORT_NONE;
    s->export_writes = s->export_snapshot = 0;
    return true;
}

static bool disk_returns(struct state *s)
{
    if (!s->absent || s->step != NO_STEP)
        return false;
    s->absent = 0;
    return true;
}

static bool record_is_lost(struct state *s)
{
    if (!s->has_record || s->mounted || !is_here(s) || s->step != NO_STEP || s->made_up)
        return false;
    s->has_record = s->stage = s->writes = 0;
    return true;
}

static bool node_hears_of_the_order(struct state *s)
{
    if (s->step != NO_STEP || (s->seen_requested == s->requested && s->seen_discard == s->discard))
        return false;
    s->seen_requested = s->requested;
    s->seen_discard = s->discard;
    s->seen_committed = s->committed;
    return true;
}

/* DeleteVolume, by any replica; again after a withdrawal. */
static bool release_is_asked_for(struct state *s)
{
    if (s->requested || s->destroyed || s->releases == 2)
        return false;
    s->requested = 1;
    s->releases++;
    return true;
}

static bool administrator_discards(struct state *s)
{
    if (!model->discards || !model->in_cluster || !s->requested || s->discard)
        return false;
    s->discard = s->given_up = 1;
    return true;
}

/* A controller reads that the PersistentVolume is kept and that nothing is committed, and writes some time later. */
static bool controller_reads(struct state *s, unsigned i)
{
    if (!model->in_cluster || s->may_withdraw[i])
        return false;
    s->may_withdraw[i] = release_may_withdraw(s->requested, s->committed);
    return s->may_withdraw[i];
}

static bool controller_withdraws(struct state *s, unsigned i)
{
    if (!s->may_withdraw[i])
        return false;
    s->may_withdraw[i] = 0;
    /* The server refuses it if the release was committed before. */
    if (!release_may_withdraw(s->requested, s->committed) && !mutated(WITHDRAW_UNCONDITIONALLY))
        return true;
    s->requested = s->discard = 0;
    s->given_up = 0; /* the word was for that release */
    return true;
}

#define BY_CONTROLLER(i)                                                                                               \
    static bool controller_##i##_reads(struct state *s)                                                                \
    {                                                                                                                  \
        return controller_reads(s, i);                                                                                 \
    }                                                                                                                  \
    static bool controller_##i##_withdraws(struct state *s)                                                            \
    {                                                                                                                  \
        return controller_withdraws(s, i);                                                                             \
    }
BY_CONTROLLER(0)
BY_CONTROLLER(1)

/* `ends`: it brings a release nearer to its end, while no pod uses the volume; in this order. */
static const struct action {
    const char *name;
    bool (*happens)(struct state *s);
    bool ends;
} actions[] = {
    {"the disk returns", disk_returns, true},
    {"the pod leaves", pod_leaves, true},
    {"the node hears of the order", node_hears_of_the_order, true},
    {"the driver takes its step", driver_steps, true},
    {"the export starts", export_starts, true},
    {"the export succeeds", export_succeeds, true},
    {"the driver decides", driver_decides, true},
    {"the release is asked for", release_is_asked_for, false},
    {"a pod is published", publishes, false},
    {"the publish is counted", counts_late, false},
    {"the pod writes", pod_writes, false},
    {"the driver dies", driver_dies, false},
    {"the export fails", export_fails, false},
    {"the export dies", export_dies, false},
    {"the disk goes", disk_goes, false},
    {"the record is lost", record_is_lost, false},
    {"an administrator discards", administrator_discards, false},
    {"the first controller reads", controller_0_reads, false},
    {"the first controller withdraws", controller_0_withdraws, false},
    {"the second controller reads", controller_1_reads, false},
    {"the second controller withdraws", controller_1_withdraws, false},
};

/* ---- the search -------------------------------------------------------------------------------------------------- */

struct node {
    struct state state;
    uint32_t from;
    uint8_t action;
};

static struct node *nodes;
static size_t node_count;
static uint32_t *table; /* open addressing; 0: free, else index + 1 */
enum { TABLE_SIZE = STATES_MAX * 2 };

static uint64_t hash_of(const struct state *s)
{
    uint64_t h = 14695981039346656037U;
    const uint8_t *p = (const uint8_t *)s;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ p[i]) * 1099511628211U;
    return h;
}

static bool add(const struct state *s, uint32_t from, size_t action)
{
    size_t at = hash_of(s) % TABLE_SIZE;
    for (; table[at]; at = (at + 1) % TABLE_SIZE)
        if (memcmp(&nodes[table[at] - 1].state, s, sizeof *s) == 0)
            return false;
    assert_true(node_count < STATES_MAX);
    nodes[node_count] = (struct node){.state = *s, .from = from, .action = (uint8_t)action};
    table[at] = (uint32_t)++node_count;
    return true;
}

static void tell_way(size_t to)
{
    if (to == 0)
        return;
    tell_way(nodes[to].from);
    print_message("    %s\n", actions[nodes[to].action].name);
}

/* The end in a quiet world: no pod uses the volume, nothing fails, the disk is there. */
static bool comes_to_its_end(struct state s)
{
    for (unsigned turns = 0; turns < 60; turns++) {
        if (s.answered || (model->in_cluster && !s.requested))
            return true;
        bool moved = false;
        for (size_t i = 0; i < countof(actions) && actions[i].ends && !moved; i++)
            moved = actions[i].happens(&s);
        if (!moved)
            return false;
    }
    return s.answered;
}

/* The violation, or NULL; *ret_at: its state. */
static const char *search(size_t *ret_at)
{
    struct state first = {.has_record = 1, .step = NO_STEP};
    memset(table, 0, TABLE_SIZE * sizeof *table);
    node_count = 0;
    add(&first, 0, 0);
    for (size_t i = 0; i < node_count; i++) {
        struct state s = nodes[i].state;
        *ret_at = i;
        const char *why = broken(&s);
        if (!why && s.requested && !comes_to_its_end(s))
            why = "a release that nothing holds does not end";
        if (why)
            return why;
        for (size_t a = 0; a < countof(actions); a++) {
            struct state next = s;
            if (actions[a].happens(&next))
                (void)add(&next, (uint32_t)i, a);
        }
    }
    return NULL;
}

static const struct model models[] = {
    {.in_cluster = false, .has_policy = true},
    {.in_cluster = false, .has_policy = false},
    {.in_cluster = true, .has_policy = true, .discards = false},
    {.in_cluster = true, .has_policy = true, .discards = true},
    {.in_cluster = true, .has_policy = false},
};

static const char *find_what_is_wrong(enum mutation m, bool tells)
{
    for (size_t i = 0; i < countof(models); i++) {
        struct model variant = models[i];
        size_t at = 0;
        variant.mutation = m;
        model = &variant;
        const char *why = search(&at);
        print_message("%s, %s, %s%s: %zu states%s%s\n", mutation_names[m],
                      variant.in_cluster ? "cluster" : "standalone", variant.has_policy ? "policy" : "no policy",
                      variant.discards ? ", discards" : "", node_count, why ? ": " : "", why ? why : "");
        if (why && tells)
            tell_way(at);
        if (why)
            return why;
    }
    return NULL;
}

static void no_interleaving_destroys_what_was_not_confirmed_and_every_release_ends(void **state)
{
    (void)state;
    assert_null(find_what_is_wrong(AS_IT_IS, true));
}

static void the_checker_finds_each_mutation(void **state)
{
    (void)state;
    for (enum mutation m = AS_IT_IS + 1; m < MUTATIONS; m++)
        if (!find_what_is_wrong(m, false))
            fail_msg("the checker does not find %s", mutation_names[m]);
}

static int make_room(void **state)
{
    (void)state;
    nodes = malloc(STATES_MAX * sizeof *nodes); /* touched only as far as states are found */
    table = calloc(TABLE_SIZE, sizeof *table);
    return nodes && table ? 0 : -1;
}

static int free_room(void **state)
{
    (void)state;
    free(nodes);
    free(table);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_interleaving_destroys_what_was_not_confirmed_and_every_release_ends),
        cmocka_unit_test(the_checker_finds_each_mutation),
    };
    return cmocka_run_group_tests(tests, make_room, free_room);
}
