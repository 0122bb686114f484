/* SPDX-License-Identifier: Apache-2.0 */
#include "claim.h"
#include "util/names.h"

static struct claim_step wait_for(const char *why)
{
    return (struct claim_step){.action = CLAIM_NOTHING, .why = why};
}

static struct claim_step tell(enum claim_notice notice, const char *why)
{
    return (struct claim_step){.action = CLAIM_NOTHING, .notice = notice, .why = why};
}

static struct claim_step act(enum claim_action action, const char *why)
{
    return (struct claim_step){.action = action, .why = why};
}

static bool is_target_of(const struct claim_facts *f)
{
    const struct claim *t = f->target;
    return t->source.len && !str_eq(t->namespace, f->own_namespace);
}

/* The volume is the target's already; that the target knows of it may come later. */
static bool is_handed_over(const struct claim_facts *f)
{
    return f->pv && f->target && str_eq(f->pv->claim_uid, f->target->uid);
}

static struct claim_step end_prime(const struct claim_facts *f, const char *why)
{
    return f->prime->deleting ? wait_for("the prime claim is going") : act(CLAIM_DELETE_PRIME, why);
}

/* The finalizer is the last thing that holds the target, so it goes when nothing of ours is left to find by it. A
 * volume on a node that cannot answer is not waited for: its own finalizer holds it, and the target must not hang in
 * Terminating because a node is away. Nor is its Job, whose pod no kubelet there can end. */
static struct claim_step leave(const struct claim_facts *f, const char *why)
{
    if (f->prime)
        return end_prime(f, why);
    if (f->job_left && !f->volume_stranded)
        return wait_for("a job is going");
    if (f->volume_left && !f->volume_stranded)
        return wait_for("the volume is going");
    return f->target->guarded ? act(CLAIM_UNGUARD, why) : wait_for("done");
}

static struct claim_step bound(const struct claim_facts *f)
{
    const struct claim *t = f->target;
    bool right = is_handed_over(f) && str_eq(f->pv->name, t->volume_name);
    if (!f->prime && !t->guarded)
        return wait_for("done");
    /* Before the target says Bound, the volume is not its own for good. */
    if (t->phase != CLAIM_BOUND)
        return wait_for("the target is being bound");
    struct claim_step step = leave(f, right ? "the target is bound" : "the target is bound to another volume");
    if (!right && step.action == CLAIM_DELETE_PRIME)
        step.notice = NOTICE_OTHER_VOLUME;
    return step;
}

/* The volume cannot be made or filled where the target was to go. First the target is freed for another node, then the
 * prime goes: the other way round, a controller that dies between the two finds a target with a node and no prime, and
 * would try the same node again. A target that has another node already keeps it. */
static struct claim_step plan_again(const struct claim_facts *f, enum claim_notice notice, const char *why)
{
    if (f->target->selected_node.len && str_eq(f->target->selected_node, f->prime->prime_node))
        return (struct claim_step){.action = CLAIM_UNSELECT, .notice = notice, .why = why};
    return end_prime(f, why);
}

/* Is there a reason to give this prime up? */
static bool must_plan_again(const struct claim_facts *f, struct claim_step *ret)
{
    const struct claim *t = f->target, *p = f->prime;
    if (f->node == CLAIM_NODE_GONE)
        *ret = plan_again(f, NOTICE_NODE_GONE, "the node is gone");
    else if (f->node == CLAIM_NODE_CORDONED && !p->made_cordoned)
        *ret = plan_again(f, NOTICE_NODE_CORDONED, "the node was cordoned");
    else if (!p->selected_node.len && !p->volume_name.len)
        /* The provisioner took it off: there was no space. */
        *ret = plan_again(f, NOTICE_NODE_FULL, "the node is full");
    else if (f->lost)
        *ret = plan_again(f, NOTICE_VOLUME_LOST, "the volume lost its data");
    else if (p->phase == CLAIM_LOST)
        *ret = end_prime(f, "the prime claim lost its volume");
    else if (t->selected_node.len && !str_eq(t->selected_node, p->prime_node))
        *ret = end_prime(f, "the target goes to another node");
    else if (!t->selected_node.len && !p->volume_name.len)
        *ret = end_prime(f, "the target has no node any more");
    else
        return false;
    return true;
}

static struct claim_step with_prime(const struct claim_facts *f)
{
    struct claim_step step;
    if (is_handed_over(f))
        return wait_for("the target is to be bound");
    if (f->prime->deleting)
        return wait_for("the prime claim is going");
    if (must_plan_again(f, &step))
        return step;
    if (!f->target->guarded)
        return act(CLAIM_GUARD, "the prime claim has a target without a guard");
    /* A scheduler that gives up a wait leaves the node on the claim and comes back to it. Where somebody took it off
     * all the same, the pod would be sent anywhere, and what is here already be filled anew there. */
    if (!f->target->selected_node.len)
        return act(CLAIM_SELECT, "its volume is on this node already");
    if (f->prime->phase != CLAIM_BOUND || !f->pv || !str_eq(f->pv->claim_uid, f->prime->uid))
        return wait_for("the volume is being made");
    if (!str_eq(f->pv->policy, STR("Delete")))
        return act(CLAIM_KEEP_POLICY, "a volume that nobody has seen is not retained");
    return f->filled ? act(CLAIM_HAND_OVER, "the volume is filled") : wait_for("the volume is being filled");
}

static struct claim_step without_prime(const struct claim_facts *f)
{
    if (is_handed_over(f))
        return wait_for("the target is to be bound");
    if (!f->cross_namespace && !str_eq(f->target->source_namespace, f->target->namespace))
        return tell(NOTICE_SOURCE_ELSEWHERE, "the source is in another namespace");
    if (!f->class)
        return wait_for("there is no such class");
    if (!f->class->ours)
        return tell(NOTICE_FOREIGN_CLASS, "the class is another driver's");
    if (!f->class->waits)
        return tell(NOTICE_IMMEDIATE, "the class binds at once");
    if (!f->has_source)
        return tell(NOTICE_SOURCE_NOT_FOUND, "there is no such source");
    if (!f->target->selected_node.len)
        return wait_for("no pod has come yet");
    /* The scheduler looks only at the node that the target names: without it, nowhere. */
    if (f->node == CLAIM_NODE_GONE)
        return (struct claim_step){CLAIM_UNSELECT, NOTICE_NODE_GONE, "the node is gone"};
    /* The cluster's controller is about to write on the claim, and would tell the user that it could not if we were
     * faster; without it nobody makes a volume anyway. */
    if (!f->target->provisioner.len)
        return wait_for("nobody was asked for its volume yet");
    /* Before the prime: a target that is deleted in between must still wait for us to remove what we make. */
    if (!f->target->guarded)
        return act(CLAIM_GUARD, "a prime claim is to be made");
    return act(CLAIM_MAKE_PRIME, "the target has a node");
}

/* What is deleted comes before any look at the source, the class or the node: they may be gone too, and clean-up needs
 * none of them. */
struct claim_step claim_next(const struct claim_facts *f)
{
    /* The provisioner made it although its claim was gone by then. Retained, it would hold the target for ever. */
    if (f->stray)
        return act(CLAIM_KEEP_POLICY, "a volume whose prime claim is gone is not retained");
    if (!f->target)
        return f->prime ? end_prime(f, "the target is gone") : wait_for("gone");
    if (!is_target_of(f))
        return wait_for("not ours");
    if (f->target->deleting)
        return leave(f, "the target is deleted");
    if (f->target->volume_name.len)
        return bound(f);
    return f->prime ? with_prime(f) : without_prime(f);
}

bool claim_in_flight(const struct claim_facts *f)
{
    return f->prime || (f->target && f->target->guarded);
}

const char *claim_action_name(enum claim_action a)
{
    static const char *const names[] = {
        "nothing", "guard",    "make the prime claim",   "keep the policy", "hand over",
        "select",  "unselect", "delete the prime claim", "unguard",
    };
    return names[a];
}
