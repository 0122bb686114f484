/* SPDX-License-Identifier: Apache-2.0 */
/* What keeps a claim waiting, or sends it elsewhere, as events on it. */
#include "api/pool.h"
#include "private.h"
#include "util/names.h"
#include <stdio.h>

enum { TEXT_MAX = 251 };

static void describe_space(struct populate *p, const struct claim_pair *c, char *ret, size_t size)
{
    struct err ignored;
    struct str asked = STR_NULL, pool = STR("default");
    char name[API_POOL_NAME_MAX + 1], free_text[BYTES_TEXT_MAX];
    auto_json class = kube_informer_get(p->classes, STR_NULL, c->target.class_name);
    auto_mem char *node = str_dup(c->prime.prime_node);
    if ((class && json_opt_str(class, "parameters.pool", &pool, &ignored) < 0) ||
        json_opt_str(c->target_json, "spec.resources.requests.storage", &asked, &ignored) < 0)
        return;
    auto_mem char *pool_text = str_dup(pool);
    auto_json object = NULL;
    if (api_pool_name(node, pool_text, name, &ignored) == 0)
        object = kube_informer_get(p->o.pools, STR_NULL, str_of(name));
    auto_api_pool found = NULL;
    if (!object || api_pool_read(object, &found, &ignored) < 0)
        snprintf(ret, size, "no space for %.*s in pool %s", STR_FMT(asked), pool_text);
    else
        snprintf(ret, size, "%s free in pool %s, need %.*s", bytes_text(found->available_bytes, free_text), pool_text,
                 STR_FMT(asked));
}

static void describe(struct populate *p, const struct claim_pair *c, enum claim_notice notice, char ret[TEXT_MAX])
{
    const struct claim *t = &c->target;
    struct str node = c->prime.prime_node.len ? c->prime.prime_node : t->selected_node;
    char space[128] = "no space";
    switch (notice) {
    case NOTICE_SOURCE_NOT_FOUND:
        snprintf(ret, TEXT_MAX, "there is no BucketSource %.*s/%.*s (CIS5201, NOT_FOUND); the claim waits for it",
                 STR_FMT(t->source_namespace), STR_FMT(t->source));
        break;
    case NOTICE_SOURCE_ELSEWHERE:
        snprintf(ret, TEXT_MAX,
                 "BucketSource %.*s/%.*s is of another namespace (CIS5202, DENIED); name one of this one",
                 STR_FMT(t->source_namespace), STR_FMT(t->source));
        break;
    case NOTICE_IMMEDIATE:
        snprintf(ret, TEXT_MAX,
                 "class %.*s binds at once (CIS5203, INVALID); what is on a node needs volumeBindingMode "
                 "WaitForFirstConsumer",
                 STR_FMT(t->class_name));
        break;
    case NOTICE_FOREIGN_CLASS:
        snprintf(ret, TEXT_MAX,
                 "class %.*s is not of " NAME_DRIVER " (CIS5204, INVALID); only its volumes are filled "
                 "from a BucketSource",
                 STR_FMT(t->class_name));
        break;
    case NOTICE_NODE_FULL:
        describe_space(p, c, space, sizeof space);
        snprintf(ret, TEXT_MAX, "node %.*s: %s (CIS2028, NO_SPACE); rescheduling", STR_FMT(node), space);
        break;
    case NOTICE_NODE_GONE:
        snprintf(ret, TEXT_MAX, "node %.*s is gone (CIS5205, NOT_FOUND); rescheduling", STR_FMT(node));
        break;
    case NOTICE_NODE_CORDONED:
        snprintf(ret, TEXT_MAX, "node %.*s was cordoned (CIS5205, BUSY); rescheduling", STR_FMT(node));
        break;
    case NOTICE_VOLUME_LOST:
        snprintf(ret, TEXT_MAX, "node %.*s lost the volume before it was filled (CIS5206, IO); another one is made",
                 STR_FMT(node));
        break;
    case NOTICE_OTHER_VOLUME:
        snprintf(ret, TEXT_MAX,
                 "the claim was bound to volume %.*s (CIS5207, CHANGED); the one that was being filled "
                 "for it is removed",
                 STR_FMT(t->volume_name));
        break;
    case NOTICE_NONE:
        break;
    }
}

void claim_notice_tell(struct populate *p, const struct claim_pair *c, enum claim_notice notice)
{
    static const char *const reasons[] = {
        [NOTICE_NONE] = "None",
        [NOTICE_SOURCE_NOT_FOUND] = "SourceNotFound",
        [NOTICE_SOURCE_ELSEWHERE] = "SourceDenied",
        [NOTICE_IMMEDIATE] = "ImmediateBindingUnsupported",
        [NOTICE_FOREIGN_CLASS] = "ClassUnsupported",
        [NOTICE_NODE_FULL] = "NodeFull",
        [NOTICE_NODE_GONE] = "NodeGone",
        [NOTICE_NODE_CORDONED] = "NodeCordoned",
        [NOTICE_VOLUME_LOST] = "VolumeLost",
        [NOTICE_OTHER_VOLUME] = "PopulateAbandoned",
    };
    const struct claim *t = &c->target;
    char text[TEXT_MAX] = "";
    describe(p, c, notice, text);
    kube_event(p->o.events,
               &(struct kube_ref){
                   .resource = &kube_persistent_volume_claims, .ns = t->namespace, .name = t->name, .uid = t->uid},
               KUBE_WARNING, reasons[notice], "%s", text);
}
