/* SPDX-License-Identifier: Apache-2.0 */
/* A claim and what belongs to it, as an API server sent them: the target, its prime, a volume, a class, between NULs;
 * the first two bytes select the other facts. No step publishes unfilled data, takes a volume that was handed over, or
 * releases the target while an object of Cistern would remain. */
#include "claim.h"
#include "fuzz.h"

struct objects {
    json *trees[4]; /* owned */
    struct claim target, prime;
    struct claim_pv pv;
    struct claim_class class;
};

static bool parse_next(struct str *rest, json **ret)
{
    struct err ignored;
    struct str text;
    return str_split(rest, '\0', &text) && json_parse(text, "it", ret, &ignored) == 0;
}

static void read_all(struct str rest, struct objects *o, struct claim_facts *f)
{
    struct err err = {0};
    if (parse_next(&rest, &o->trees[0]) && claim_read(o->trees[0], &o->target, &err) == 0)
        f->target = &o->target;
    if (parse_next(&rest, &o->trees[1]) && claim_read(o->trees[1], &o->prime, &err) == 0)
        f->prime = &o->prime;
    if (parse_next(&rest, &o->trees[2]) && claim_pv_read(o->trees[2], &o->pv, &err) == 0)
        f->pv = &o->pv;
    if (parse_next(&rest, &o->trees[3]) && claim_class_read(o->trees[3], &o->class, &err) == 0)
        f->class = &o->class;
    assert(err.code == 0 || (err.code == ERR_INVALID && err.text[0]));
}

static bool may_begin(const struct claim_facts *f)
{
    return !f->prime && f->class && f->target->has_finalizer && f->target->selected_node.len;
}

static bool may_hand_over(const struct claim_facts *f)
{
    return f->filled && f->prime && f->pv && f->target->has_finalizer && !str_eq(f->pv->claim_uid, f->target->uid);
}

static bool may_let_go(const struct claim_facts *f)
{
    return !f->prime && f->target->has_finalizer && (f->volume_unreachable || !(f->job_left || f->volume_left));
}

static bool is_right(const struct claim_facts *f, enum claim_action a)
{
    bool has_target = f->target && f->target->source.len;
    switch (a) {
    case CLAIM_NOTHING:
        return true;
    case CLAIM_SAVE_POLICY:
        return f->pv || f->orphan;
    case CLAIM_DELETE_PRIME:
        return f->prime && !f->prime->deleting;
    case CLAIM_ADD_FINALIZER:
    case CLAIM_SELECT:
    case CLAIM_UNSELECT:
        return has_target;
    case CLAIM_MAKE_PRIME:
        return has_target && may_begin(f);
    case CLAIM_HAND_OVER:
        return has_target && may_hand_over(f);
    case CLAIM_REMOVE_FINALIZER:
        return has_target && may_let_go(f);
    }
    return false;
}

static void check_step(const struct claim_facts *f)
{
    struct claim_step s = claim_next(f);
    assert(s.why && claim_action_name(s.action) && is_right(f, s.action));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct objects o = {0};
    struct str uid;
    if (len < 2)
        return 0;
    struct claim_facts f = {.own_namespace = STR("cistern-system"),
                            .cross_namespace = bytes[0] & 1,
                            .has_source = bytes[0] & 2,
                            .filled = bytes[0] & 4,
                            .lost = bytes[0] & 8,
                            .job_left = bytes[0] & 16,
                            .volume_left = bytes[0] & 32,
                            .volume_unreachable = bytes[0] & 64,
                            .node = (enum claim_node)(bytes[1] % 4)};
    read_all(fuzz_str(bytes + 2, len - 2), &o, &f);
    f.orphan = bytes[0] & 128 ? f.pv : NULL;
    check_step(&f);
    if (f.prime && claim_target_uid(f.prime->name, &uid))
        assert(uid.len == 36 && !memchr(uid.ptr, '/', uid.len) && str_ends(f.prime->name, uid));
    for (size_t i = 0; i < countof(o.trees); i++)
        json_free(o.trees[i]);
    return 0;
}
