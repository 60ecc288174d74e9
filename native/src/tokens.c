/* Text to tokens, as the model's own tokenizer has them: each code point through the normalising rules, runs of spaces as
 * one, a space in front, and then the best path of pieces by the sum of their scores (ties: the earlier start stays). A
 * character that no piece covers is the unknown token. Marks such as `</s>` are in no table, so text never becomes one.
 * Linear in the text: a piece has at most 48 bytes. Bytes that are not UTF-8 become some code point, and harm nothing. */
#include "engine.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPACE_MARK = 0x2581 };

typedef struct {
    char *bytes;
    size_t length, room;
} Text;

uint64_t piece_hash(uint64_t hash, uint8_t byte) {
    hash = (hash + byte + 1) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}
static int is_inside(char byte) { return (byte & 0xc0) == 0x80; }

static int append(Text *t, uint32_t code) {
    if (t->room - t->length < 4) {
        char *more = realloc(t->bytes, t->room * 2);
        if (!more) return 0;
        t->bytes = more, t->room *= 2;
    }
    char *o = t->bytes + t->length;
    const int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6) o[i] = (char)(0x80 | (code & 63));
    o[0] = (char)(n == 1 ? code : (0xf00u >> n & 0xff) | code);
    t->length += (size_t)n;
    return 1;
}
/* Return the code point at `at` and move behind it. */
static uint32_t next_code(const uint8_t *text, size_t bytes, size_t *at) {
    const uint8_t first = text[(*at)++];
    const int more = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    uint32_t code = more ? first & (0x3fu >> more) : first & 0x7fu;
    for (int i = 0; i < more; i++) code = code << 6 | (*at < bytes ? text[(*at)++] & 63u : 0);
    return code > 0x10ffff ? 0xfffd : code;
}
static uint32_t u32_at(const uint8_t *p) {
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}
/* Return where the rule of a code point is, NULL where it stays as it is. */
static const uint8_t *rule_of(const Model *m, uint32_t code) {
    for (int low = 0, high = m->rules; low < high;) {
        const int middle = (low + high) / 2;
        const uint8_t *rule = m->image + m->rule_at[middle];
        const uint32_t its = u32_at(rule);
        if (its == code) return rule;
        if (its < code)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
static int normalise(const Model *m, const uint8_t *text, size_t bytes, Text *t) {
    int after_space = 1; /* a space in front of the text and the one that is put there are one */
    if (!append(t, SPACE_MARK)) return 0;
    for (size_t at = 0; at < bytes;) {
        const uint32_t code = next_code(text, bytes, &at);
        const uint8_t *rule = rule_of(m, code);
        for (int i = 0, many = rule ? rule[4] : 1; i < many; i++) {
            const uint32_t normal = rule ? u32_at(rule + 5 + 4 * i) : code;
            if (normal == ' ' && after_space) continue;
            after_space = normal == ' ';
            if (!append(t, after_space ? SPACE_MARK : normal)) return 0;
        }
    }
    return 1;
}
static int find_piece(const Model *m, uint64_t hash, const char *text, size_t bytes) {
    for (uint32_t slot = (uint32_t)(hash >> 20) & m->mask; m->table[slot]; slot = (slot + 1) & m->mask) {
        const uint32_t id = m->table[slot] - 1;
        if (m->piece_at[id + 1] - m->piece_at[id] == bytes && !memcmp(m->text + m->piece_at[id], text, bytes)) return (int)id;
    }
    return -1;
}

typedef struct {
    float score;
    int32_t piece;
    uint32_t start;
} Step; /* the best way to reach a byte */

static void best_path(const Model *m, const Text *t, Step *steps) {
    for (size_t i = 1; i <= t->length; i++) steps[i] = (Step){-INFINITY, m->unknown, 0};
    steps[0] = (Step){0, m->unknown, 0};
    for (size_t from = 0; from < t->length; from++) {
        if (is_inside(t->bytes[from]) || steps[from].score == -INFINITY) continue;
        uint64_t hash = 0;
        int is_first = 1;
        for (size_t to = from; to < t->length && to - from < (size_t)m->longest;) {
            do hash = piece_hash(hash, (uint8_t)t->bytes[to++]);
            while (to < t->length && is_inside(t->bytes[to]));
            const int id = find_piece(m, hash, t->bytes + from, to - from);
            const float score = steps[from].score + (id >= 0 ? m->piece_score[id] : m->unknown_score);
            if ((id >= 0 || is_first) && score > steps[to].score)
                steps[to] = (Step){score, id >= 0 ? id : m->unknown, (uint32_t)from};
            is_first = 0;
        }
    }
}

/* text: UTF-8 with its role in front. ids: room for `most` tokens, `<s>` and `</s>` among them; where the text has more,
 * the first of them and `</s>`. count: how many the whole text has. */
Status ae_tokens(const Model *m, const char *text, size_t bytes, int32_t *ids, int most, int32_t *count) {
    if (!m || !text || !count || bytes > TEXT_BYTES_MOST || most < 0 || (most && !ids)) return AE_INPUT;
    Text t = {malloc(bytes * 2 + 16), 0, bytes * 2 + 16};
    if (!t.bytes || !normalise(m, (const uint8_t *)text, bytes, &t)) {
        free(t.bytes);
        return AE_MEMORY;
    }
    Step *steps = malloc(sizeof *steps * (t.length + 1));
    if (!steps) {
        free(t.bytes);
        return AE_MEMORY;
    }
    best_path(m, &t, steps);
    int all = 2;
    for (size_t end = t.length; end > 0; end = steps[end].start) all++;
    if (most > 0) ids[0] = m->begin;
    size_t end = t.length;
    for (int i = all - 2; i > 0; i--, end = steps[end].start)
        if (i < most) ids[i] = steps[end].piece;
    if (most > 1) ids[(all < most ? all : most) - 1] = m->end;
    *count = all;
    free(t.bytes);
    free(steps);
    return AE_OK;
}
