/* SPDX-License-Identifier: Apache-2.0 */
#include "claim.h"
#include <assert.h>

static struct claim_step wait_for(const char *why)
{
    return (struct claim_step){.action = CLAIM_NOTHING, .why = why};
}

static struct claim_step wait_with_event(enum claim_event event, const char *why)
{
    return (struct claim_step){.action = CLAIM_NOTHING, .event = event, .why = why};
}

/* The store of a source that was ready does not answer as before. Neither a claim without a pod nor a Job that still
 * retries would tell. */
static struct claim_step wait_for_source(const struct claim_facts *f, enum claim_event otherwise, const char *why)
{
    return wait_with_event(f->is_degraded ? CLAIM_EVENT_SOURCE_DEGRADED : otherwise, why);
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

/* The volume's claimRef names the target already; the target may not be Bound yet. */
static bool is_handed_over(const struct claim_facts *f)
{
    return f->pv && f->target && str_eq(f->pv->claim_uid, f->target->uid);
}

static struct claim_step end_prime(const struct claim_facts *f, const char *why)
{
    return f->prime->deleting ? wait_for("the prime claim is being deleted") : act(CLAIM_DELETE_PRIME, why);
}

/* The finalizer is removed last, after all objects that are found by the target are gone. A volume on an unreachable
 * node is not waited for: its own finalizer keeps it, and the target must not stay Terminating. Neither is its Job: no
 * kubelet can end its pod there. */
static struct claim_step clean_up(const struct claim_facts *f, const char *why)
{
    if (f->prime)
        return end_prime(f, why);
    if (f->job_left && !f->volume_unreachable)
        return wait_for("a Job is being deleted");
    if (f->volume_left && !f->volume_unreachable)
        return wait_for("the volume is being deleted");
    return f->target->has_finalizer ? act(CLAIM_REMOVE_FINALIZER, why) : wait_for("done");
}

static struct claim_step bound(const struct claim_facts *f)
{
    const struct claim *t = f->target;
    bool right = is_handed_over(f) && str_eq(f->pv->name, t->volume_name);
    if (!f->prime && !t->has_finalizer)
        return wait_for("done");
    /* Until the target is Bound, the volume may still change its claim. */
    if (t->phase != CLAIM_BOUND)
        return wait_for("the target is being bound");
    struct claim_step step = clean_up(f, right ? "the target is bound" : "the target is bound to another volume");
    if (!right && step.action == CLAIM_DELETE_PRIME)
        step.event = CLAIM_EVENT_OTHER_VOLUME;
    return step;
}

/* The volume cannot be created or filled on the target's node. The target is freed for another node before the prime is
 * deleted. In the other order, a controller that dies in between leaves a target with a node and no prime. The same
 * node would be tried again. A target that has another node already keeps it. */
static struct claim_step plan_again(const struct claim_facts *f, enum claim_event event, const char *why)
{
    if (f->target->selected_node.len && str_eq(f->target->selected_node, f->prime->prime_node))
        return (struct claim_step){.action = CLAIM_UNSELECT, .event = event, .why = why};
    return end_prime(f, why);
}

/* Must this prime be deleted? */
static bool must_plan_again(const struct claim_facts *f, struct claim_step *ret)
{
    const struct claim *t = f->target, *p = f->prime;
    if (f->node == CLAIM_NODE_GONE)
        *ret = plan_again(f, CLAIM_EVENT_NODE_GONE, "the node was deleted");
    else if (f->node == CLAIM_NODE_CORDONED && !p->made_cordoned)
        *ret = plan_again(f, CLAIM_EVENT_NODE_CORDONED, "the node was cordoned");
    else if (!p->selected_node.len && !p->volume_name.len)
        /* The provisioner removed selected-node: the node has no space. */
        *ret = plan_again(f, CLAIM_EVENT_NODE_FULL, "the node is full");
    else if (f->lost)
        *ret = plan_again(f, CLAIM_EVENT_VOLUME_LOST, "the volume lost its data");
    else if (p->phase == CLAIM_LOST)
        *ret = end_prime(f, "the prime claim lost its volume");
    else if (t->selected_node.len && !str_eq(t->selected_node, p->prime_node))
        *ret = end_prime(f, "the target has another node");
    else if (!t->selected_node.len && !p->volume_name.len)
        *ret = end_prime(f, "the target has no node");
    else
        return false;
    return true;
}

static struct claim_step with_prime(const struct claim_facts *f)
{
    struct claim_step step;
    if (is_handed_over(f))
        return wait_for("the target is being bound");
    if (f->prime->deleting)
        return wait_for("the prime claim is being deleted");
    if (must_plan_again(f, &step))
        return step;
    if (!f->target->has_finalizer)
        return act(CLAIM_ADD_FINALIZER, "the target has no finalizer");
    /* A scheduler that stops waiting leaves the node on the claim. If the annotation was removed in another way,
     * restore it: on another node the volume would be filled again. */
    if (!f->target->selected_node.len)
        return act(CLAIM_SELECT, "the volume is on this node already");
    if (f->prime->phase != CLAIM_BOUND || !f->pv || !str_eq(f->pv->claim_uid, f->prime->uid))
        return wait_for("the volume is being created");
    if (!str_eq(f->pv->policy, STR("Delete")))
        return act(CLAIM_SAVE_POLICY, "an unused volume must not be retained");
    if (f->filled)
        return act(CLAIM_HAND_OVER, "the volume is filled");
    return f->is_suspended ? wait_with_event(CLAIM_EVENT_SOURCE_SUSPENDED, "the BucketSource is suspended")
                           : wait_for_source(f, CLAIM_EVENT_NONE, "the volume is being filled");
}

/* In the namespace of Cistern, a claim of any other name is a user's: that of helm test, for example. */
static bool is_named_as_prime(const struct claim_facts *f)
{
    struct str uid;
    return str_eq(f->target->namespace, f->own_namespace) && claim_target_uid(f->target->name, &uid);
}

bool claim_is_pending(const struct claim_facts *f)
{
    const struct claim *t = f->target;
    return t->phase == CLAIM_PENDING && !t->volume_name.len && !t->deleting && !is_named_as_prime(f);
}

/* Also a BucketSource that an annotation names: without it the provisioner would retry in silence. */
static bool lacks_source(const struct claim_facts *f, struct claim_step *ret)
{
    if (!f->has_source)
        *ret = wait_with_event(CLAIM_EVENT_SOURCE_NOT_FOUND, "the BucketSource does not exist");
    else if (!f->is_source_valid)
        *ret = wait_with_event(CLAIM_EVENT_SOURCE_INVALID, "the BucketSource is invalid");
    else
        return false;
    return true;
}

static bool has_bad_parameters(const struct claim_class *class, struct claim_step *ret)
{
    if (class->is_invalid)
        *ret = wait_with_event(CLAIM_EVENT_CLASS_INVALID, "the StorageClass has an invalid parameter");
    else if (class->awaits_pools)
        *ret = wait_with_event(CLAIM_EVENT_POOLS_PENDING, "no node has reported a pool yet");
    else if (!class->has_pool)
        *ret = wait_with_event(CLAIM_EVENT_POOL_NOT_FOUND, "no node has the pool of the class");
    else
        return false;
    return true;
}

/* A claim that no prime serves: it names no BucketSource, or a mistyped kind or group. */
static struct claim_step other_claim(const struct claim_facts *f)
{
    struct claim_step step;
    if (claim_is_pending(f) && f->target->bad_kind.len)
        return wait_with_event(CLAIM_EVENT_REFERENCE_INVALID, "dataSourceRef has another kind or group");
    if (!claim_is_pending(f) || !f->class || !f->class->ours)
        return wait_for("the claim names no BucketSource");
    if (f->target->is_invalid)
        return wait_with_event(CLAIM_EVENT_CLAIM_INVALID, "the claim cannot get a volume as it is");
    if (has_bad_parameters(f->class, &step) || lacks_source(f, &step))
        return step;
    if (f->is_too_large)
        return wait_with_event(CLAIM_EVENT_POOLS_FULL, "no pool has room for it");
    if (f->class->waits && !f->target->selected_node.len)
        return wait_with_event(CLAIM_EVENT_POD_UNSCHEDULED, "no scheduled pod uses the claim yet");
    return wait_for("the claim names no BucketSource");
}

static bool is_class_refused(const struct claim_class *class, struct claim_step *ret)
{
    if (!class->ours)
        *ret = wait_with_event(CLAIM_EVENT_FOREIGN_CLASS, "the StorageClass has another driver");
    else if (!class->waits)
        *ret = wait_with_event(CLAIM_EVENT_IMMEDIATE, "the StorageClass binds immediately");
    else
        return has_bad_parameters(class, ret);
    return true;
}

static struct claim_step without_prime(const struct claim_facts *f)
{
    struct claim_step step;
    if (is_handed_over(f))
        return wait_for("the target is being bound");
    if (!f->cross_namespace && !str_eq(f->target->source_namespace, f->target->namespace))
        return wait_with_event(CLAIM_EVENT_SOURCE_ELSEWHERE, "the BucketSource is in another namespace");
    if (!f->class)
        return wait_with_event(CLAIM_EVENT_CLASS_NOT_FOUND, "the StorageClass does not exist");
    if (is_class_refused(f->class, &step))
        return step;
    if (f->target->is_invalid)
        return wait_with_event(CLAIM_EVENT_CLAIM_INVALID, "the claim cannot get a volume as it is");
    if (lacks_source(f, &step))
        return step;
    if (f->is_too_large)
        return wait_with_event(CLAIM_EVENT_POOLS_FULL, "no pool has room for it");
    if (!f->target->selected_node.len)
        return wait_for_source(f, CLAIM_EVENT_POD_UNSCHEDULED, "no scheduled pod uses the claim yet");
    /* While the target names a node, the scheduler considers no other. */
    if (f->node == CLAIM_NODE_GONE)
        return (struct claim_step){CLAIM_UNSELECT, CLAIM_EVENT_NODE_GONE, "the node was deleted"};
    /* The controller manager is about to write the claim. If we wrote first it would report a conflict to the user. */
    if (!f->target->provisioner.len)
        return wait_for("the storage-provisioner annotation is missing");
    /* Set before the prime is created: a target that is deleted afterwards must wait until the prime is deleted. */
    if (!f->target->has_finalizer)
        return act(CLAIM_ADD_FINALIZER, "a prime claim will be created");
    return act(CLAIM_MAKE_PRIME, "the target has a node");
}

/* Deletion comes first: source, class and node may be deleted too, and clean-up needs none of them. */
struct claim_step claim_next(const struct claim_facts *f)
{
    /* The provisioner created it after its claim was deleted. If it is retained, the target waits without limit. */
    if (f->orphan)
        return act(CLAIM_SAVE_POLICY, "a volume without its prime claim must not be retained");
    if (!f->target)
        return f->prime ? end_prime(f, "the target was deleted") : wait_for("deleted");
    if (!is_target_of(f))
        return other_claim(f);
    if (f->target->deleting)
        return clean_up(f, "the target is being deleted");
    if (f->target->volume_name.len)
        return bound(f);
    return f->prime ? with_prime(f) : without_prime(f);
}

bool claim_in_flight(const struct claim_facts *f)
{
    return f->prime || (f->target && f->target->has_finalizer);
}

const char *claim_event_reason(enum claim_event e)
{
    static const char *const reasons[] = {
        [CLAIM_EVENT_NONE] = "None",
        [CLAIM_EVENT_SOURCE_NOT_FOUND] = "SourceNotFound",
        [CLAIM_EVENT_SOURCE_ELSEWHERE] = "SourceDenied",
        [CLAIM_EVENT_IMMEDIATE] = "ImmediateBindingUnsupported",
        [CLAIM_EVENT_FOREIGN_CLASS] = "ClassUnsupported",
        [CLAIM_EVENT_CLASS_NOT_FOUND] = "ClassNotFound",
        [CLAIM_EVENT_CLASS_INVALID] = "ClassInvalid",
        [CLAIM_EVENT_SOURCE_SUSPENDED] = "SourceSuspended",
        [CLAIM_EVENT_SOURCE_INVALID] = "SourceInvalid",
        [CLAIM_EVENT_SOURCE_DEGRADED] = "SourceDegraded",
        [CLAIM_EVENT_REFERENCE_INVALID] = "DataSourceInvalid",
        [CLAIM_EVENT_POOLS_PENDING] = "PoolsPending",
        [CLAIM_EVENT_POD_UNSCHEDULED] = "PodNotScheduled",
        [CLAIM_EVENT_POOLS_FULL] = "PoolsFull",
        [CLAIM_EVENT_CLAIM_INVALID] = "ClaimInvalid",
        [CLAIM_EVENT_POOL_NOT_FOUND] = "PoolNotFound",
        [CLAIM_EVENT_NODE_FULL] = "NodeFull",
        [CLAIM_EVENT_NODE_GONE] = "NodeGone",
        [CLAIM_EVENT_NODE_CORDONED] = "NodeCordoned",
        [CLAIM_EVENT_VOLUME_LOST] = "VolumeLost",
        [CLAIM_EVENT_OTHER_VOLUME] = "PopulateAbandoned",
    };
    return reasons[e];
}

const char *claim_action_name(enum claim_action a)
{
    static const char *const names[] = {
        "nothing",     "add finalizer", "create prime claim", "save reclaim policy", "hand over",
        "select node", "unselect node", "delete prime claim", "remove finalizer",
    };
    static_assert(countof(names) == CLAIM_REMOVE_FINALIZER + 1, "a name for each action");
    return names[a];
}
