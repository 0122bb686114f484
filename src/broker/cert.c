/* SPDX-License-Identifier: Apache-2.0 */
#include "cert.h"

enum { DAY = 86400, HOUR = 3600 };

/* Allowed difference between the clocks of two machines. */
enum { SKEW = 300 };

#define AUTHORITY_NAME "cistern-broker-ca"

void cert_set_done(struct cert_set *s)
{
    x509_pair_done(&s->authority);
    x509_pair_done(&s->next);
    x509_pair_done(&s->server);
    free(take(&s->bundle));
}

static struct cert_times filled(struct cert_times t)
{
    static const struct cert_times usual = {(int64_t)365 * DAY, (int64_t)60 * DAY, HOUR, (int64_t)30 * DAY,
                                            (int64_t)20 * DAY};
    t.authority = t.authority ? t.authority : usual.authority;
    t.authority_before = t.authority_before ? t.authority_before : usual.authority_before;
    t.published = t.published ? t.published : usual.published;
    t.certificate = t.certificate ? t.certificate : usual.certificate;
    t.certificate_before = t.certificate_before ? t.certificate_before : usual.certificate_before;
    return t;
}

/* End of the validity of a pair; 0 if it is unusable. A pair that is not valid yet was made by a clock that was ahead:
 * no Job would accept it. */
static int64_t end_of(const struct x509_pair *p, int64_t now)
{
    struct x509_validity life;
    if (!x509_is_pair(p) || !x509_validity_of(str_of(p->certificate), &life) || life.from_s > now ||
        life.until_s <= now)
        return 0;
    return life.until_s;
}

static int make_authority(struct x509_pair *p, const struct cert_times *t, int64_t now, struct err *err)
{
    x509_pair_done(p);
    return x509_make_authority(AUTHORITY_NAME, (struct x509_validity){now - SKEW, now + t->authority}, p, err);
}

/* May the next CA sign? It must be old enough, and published. */
static bool is_due(const struct x509_pair *next, const struct cert_now *now, const struct cert_times *t)
{
    struct x509_validity life;
    return end_of(next, now->wall_s) > 0 && x509_validity_of(str_of(next->certificate), &life) &&
           now->wall_s >= life.from_s + SKEW + t->published && str_has(now->published, str_of(next->certificate));
}

static int step_authority(struct cert_set *s, const struct cert_now *now, const struct cert_times *t, bool *changed,
                          struct err *err)
{
    int64_t end = end_of(&s->authority, now->wall_s);
    int r = 0;
    if (is_due(&s->next, now, t)) {
        x509_pair_done(&s->authority);
        s->authority = take(&s->next);
        *changed = true;
    } else if (end == 0) {
        r = make_authority(&s->authority, t, now->wall_s, err);
        *changed = true;
    } else if (end - now->wall_s <= t->authority_before && end_of(&s->next, now->wall_s) == 0) {
        r = make_authority(&s->next, t, now->wall_s, err);
        *changed = true;
    }
    return r;
}

static bool serves(const struct x509_pair *p, const char *const *names)
{
    for (size_t i = 0; i < CERT_NAMES_MAX && names[i]; i++)
        if (!x509_is_for(p->certificate, names[i]))
            return false;
    return true;
}

static int step_server(struct cert_set *s, const struct cert_now *now, const struct cert_times *t, bool *changed,
                       struct err *err)
{
    size_t count = 0;
    int64_t end = end_of(&s->server, now->wall_s), authority_end = end_of(&s->authority, now->wall_s);
    bool is_last = end == authority_end; /* a new certificate would end at the same time */
    if (end > 0 && (is_last || end - now->wall_s > t->certificate_before) && serves(&s->server, now->names) &&
        x509_is_signed_by(s->server.certificate, s->authority.certificate))
        return 0;
    while (count < CERT_NAMES_MAX && now->names[count])
        count++;
    int64_t until = now->wall_s + t->certificate;
    struct x509_validity life = {now->wall_s - SKEW, until < authority_end ? until : authority_end};
    *changed = true;
    x509_pair_done(&s->server);
    return x509_make_server(&s->authority, now->names, count, life, &s->server, err);
}

static void add_once(struct sbuf *b, struct str one)
{
    if (str_has(sbuf_str(b), one))
        return;
    sbuf_add(b, one);
    if (!str_ends(one, STR("\n")))
        sbuf_addc(b, '\n');
}

static int step_bundle(struct cert_set *s, int64_t now, bool *changed, struct err *err)
{
    struct sbuf b;
    struct x509_validity life;
    char *bundle;
    sbuf_init(&b, CERT_BUNDLE_MAX);
    add_once(&b, str_of(s->authority.certificate));
    if (s->next.certificate)
        add_once(&b, str_of(s->next.certificate));
    struct str rest = str_of(s->bundle);
    for (struct str one; x509_split(&rest, &one);)
        if (x509_validity_of(one, &life) && life.until_s > now)
            add_once(&b, one);
    int r = sbuf_take(&b, &bundle, err);
    if (r < 0)
        return r;
    *changed |= !s->bundle || strcmp(bundle, s->bundle) != 0;
    free(s->bundle);
    s->bundle = bundle;
    return 0;
}

int cert_step(struct cert_set *s, const struct cert_now *now, bool *ret_changed, struct err *err)
{
    struct cert_times t = filled(now->times);
    bool changed = false;
    int r = step_authority(s, now, &t, &changed, err);
    if (r == 0)
        r = step_server(s, now, &t, &changed, err);
    if (r == 0)
        r = step_bundle(s, now->wall_s, &changed, err);
    if (r < 0)
        return r;
    *ret_changed = changed;
    return 0;
}
