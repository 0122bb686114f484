/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the journal's state in memory: complete objects, and the written parts of the others. */
#include "format.h"
#include "journal_format.h"

uint32_t journal_record_crc(const struct journal_record *r, uint64_t position)
{
    struct str pieces[] = {{(const char *)&position, sizeof position},
                           {(const char *)r + sizeof r->crc, sizeof *r - sizeof r->crc}};
    return crc32c_of(pieces, countof(pieces));
}

void journal_set_whole(struct journal *j, uint64_t id, bool whole)
{
    uint64_t word = id / 64, bit = UINT64_C(1) << id % 64;
    if (word >= j->whole_words) {
        if (!whole)
            return;
        uint64_t words = max_u64(word + 1, j->whole_words * 2);
        j->whole = xrealloc(j->whole, words, sizeof *j->whole);
        memset(j->whole + j->whole_words, 0, (words - j->whole_words) * sizeof *j->whole);
        j->whole_words = words;
    }
    j->whole[word] = whole ? j->whole[word] | bit : j->whole[word] & ~bit;
}

/* The place of an id's parts, or where they would be. */
static size_t parts_place(const struct journal *j, uint64_t id)
{
    size_t low = 0, high = j->parts_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (j->parts[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct journal_parts *journal_parts_of(struct journal *j, uint64_t id)
{
    size_t at = parts_place(j, id);
    return at < j->parts_count && j->parts[at].id == id ? &j->parts[at] : NULL;
}

static struct journal_parts *parts_insert(struct journal *j, uint64_t id)
{
    size_t at = parts_place(j, id);
    if (j->parts_count == JOURNAL_PARTS_OBJECTS_MAX)
        return NULL;
    if (j->parts_count == j->parts_room) {
        j->parts_room = max_u64(64, j->parts_room * 2);
        j->parts = xrealloc(j->parts, j->parts_room, sizeof *j->parts);
    }
    memmove(&j->parts[at + 1], &j->parts[at], (j->parts_count - at) * sizeof *j->parts);
    j->parts[at] = (struct journal_parts){.id = id};
    j->parts_count++;
    return &j->parts[at];
}

void journal_note_part(struct journal *j, uint64_t id, uint32_t part, uint8_t kind, uint64_t value)
{
    struct journal_parts *p = journal_parts_of(j, id);
    if (!p)
        p = parts_insert(j, id);
    if (!p)
        return;
    if (part >= p->room) {
        uint64_t room = max_u64((uint64_t)part + 1, min_u64((uint64_t)p->room * 2, UINT32_MAX));
        if (j->parts_total - p->room + room > JOURNAL_PARTS_MAX)
            return;
        p->values = xrealloc(p->values, room, sizeof *p->values);
        p->kinds = xrealloc(p->kinds, room, 1);
        memset(p->kinds + p->room, 0, room - p->room);
        j->parts_total += room - p->room;
        p->room = (uint32_t)room;
    }
    p->values[part] = value;
    p->kinds[part] = (uint8_t)(kind + 1);
}

static void parts_done(struct journal *j, struct journal_parts *p)
{
    j->parts_total -= p->room;
    free(p->values);
    free(p->kinds);
}

void journal_forget_parts(struct journal *j, uint64_t id)
{
    struct journal_parts *p = journal_parts_of(j, id);
    if (!p)
        return;
    parts_done(j, p);
    size_t at = (size_t)(p - j->parts);
    memmove(p, p + 1, (j->parts_count - at - 1) * sizeof *p);
    j->parts_count--;
}

void journal_forget_from(struct journal *j, uint64_t id)
{
    while (j->parts_count > 0 && j->parts[j->parts_count - 1].id >= id)
        parts_done(j, &j->parts[--j->parts_count]);
    for (uint64_t word = j->whole_words; word-- > id / 64;)
        j->whole[word] &= word == id / 64 ? (UINT64_C(1) << id % 64) - 1 : 0;
}

void journal_state_done(struct journal *j)
{
    while (j->parts_count > 0)
        parts_done(j, &j->parts[--j->parts_count]);
    free(j->parts);
    free(j->whole);
}
