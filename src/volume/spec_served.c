/* SPDX-License-Identifier: Apache-2.0 */
/* The API has more words than this version acts on. One that was taken and not acted on would make a volume that looks
 * right and is not what was asked for, so it is refused where a volume is made or changed. Reading volume.json takes
 * it: a volume that another version made can still be looked at, unpublished and deleted. */
#include "spec_keys.h"

static bool has_word(const char *words, struct str word)
{
    struct str rest = str_of(words), one;
    while (str_split(&rest, ' ', &one))
        if (str_eq(one, word))
            return true;
    return false;
}

/* Is this value of the key for later, here? */
static bool is_later(const struct spec_key *key, const struct spec *s, struct str choice)
{
    return has_word(key->later, choice) && !(s->in_cluster && key->cluster && has_word(key->cluster, choice));
}

static int refuse_choice(const struct spec_key *key, const struct spec *s, struct str choice, struct err *err)
{
    auto_sbuf served;
    sbuf_init(&served, ERR_ADVICE_MAX);
    struct str rest = str_of(key->choices), one;
    while (str_split(&rest, ' ', &one))
        if (!is_later(key, s, one))
            sbuf_addf(&served, "%s%.*s", served.len ? ", " : "", STR_FMT(one));
    err_set(err, ERR_INVALID, "'%s: %.*s' is not served by this version", key->name, STR_FMT(choice));
    return err_advise(err, 2003, "what is served: %s", served.ptr);
}

static int check_choices(const struct spec_key *key, const struct spec *s, struct err *err)
{
    uint64_t value = *(const uint64_t *)((const char *)s + key->offset), i = 0;
    struct str rest = str_of(key->choices), choice;
    for (; str_split(&rest, ' ', &choice); i++) {
        bool is_chosen = key->type == TYPE_FLAGS ? value >> i & 1 : value == i;
        if (is_chosen && is_later(key, s, choice))
            return refuse_choice(key, s, choice, err);
    }
    return 0;
}

int spec_key_check_served(const struct spec_key *key, const struct spec *s, struct err *err)
{
    if (!key->later || (s->in_cluster && key->cluster && strcmp(key->cluster, LATER_ALL) == 0))
        return 0;
    if (key->choices)
        return check_choices(key, s, err);
    auto_spec unsaid = spec_new();
    if (spec_value_same(key, s, unsaid))
        return 0;
    err_set(err, ERR_INVALID, "'%s' is not served by this version", key->name);
    return err_advise(err, 2003, "leave it out");
}

int spec_check_served(const struct spec *s, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < spec_key_count && r == 0; i++)
        r = spec_key_check_served(&spec_keys[i], s, err);
    return r < 0 ? r : spec_check_owed(s, err);
}
