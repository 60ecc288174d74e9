/* Reads the weights' file: every offset, length and count is checked before it is used, and a damaged file is refused by
 * what is wrong with it. The vocabulary, the word rows and the small tensors are used where they are in the image; the
 * dense layers are copied, in the order in which the kernels read them (13 MB). docs/retrieval.md has the format. */
#include "engine.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A place in the image and how much is left behind it. A read past the end gives zeros and marks the reader. */
typedef struct {
    const uint8_t *at;
    size_t left;
    int short_of;
} Reader;

static const uint8_t *take(Reader *r, size_t bytes) {
    if (r->short_of || bytes > r->left) {
        r->short_of = 1;
        return NULL;
    }
    const uint8_t *taken = r->at;
    r->at += bytes, r->left -= bytes;
    return taken;
}
static uint32_t take_u32(Reader *r) {
    uint32_t value = 0;
    const uint8_t *p = take(r, sizeof value);
    if (p) memcpy(&value, p, sizeof value);
    return value;
}
static uint64_t take_u64(Reader *r) {
    uint64_t value = 0;
    const uint8_t *p = take(r, sizeof value);
    if (p) memcpy(&value, p, sizeof value);
    return value;
}
static float take_float(Reader *r) {
    uint32_t bits = take_u32(r);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static int within(uint32_t value, uint32_t least, uint32_t most) { return value >= least && value <= most; }
static int all_finite(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i])) return 0;
    return 1;
}

static Status read_header(Model *m, Reader *r) {
    const uint8_t *magic = take(r, 4);
    if (!magic || memcmp(magic, "E5S1", 4) || take_u32(r) != 1) return AE_HEADER;
    uint32_t width = take_u32(r), layers = take_u32(r), heads = take_u32(r), inner = take_u32(r);
    uint32_t words = take_u32(r), positions = take_u32(r), kinds = take_u32(r);
    m->eps = take_float(r);
    uint32_t block = take_u32(r), pieces = take_u32(r);
    uint32_t begin = take_u32(r), end = take_u32(r), pad = take_u32(r), unknown = take_u32(r);
    if (r->short_of) return AE_HEADER;
    if (block != BLOCK || !within(heads, 1, WIDTH_MOST / HEAD) || width != heads * HEAD || !within(layers, 1, LAYERS_MOST) ||
        !within(inner, BLOCK, INNER_MOST) || inner % BLOCK || !within(positions, 1, TOKENS_MOST) || !within(kinds, 1, 64) ||
        !within(pieces, 1, PIECES_MOST) || !within(words, pieces, PIECES_MOST + 64) || begin >= pieces || end >= pieces ||
        pad >= pieces || unknown >= pieces || !(m->eps > 0 && m->eps < 1))
        return AE_SIZES;
    m->width = (int)width, m->layers = (int)layers, m->heads = (int)heads, m->inner = (int)inner;
    m->words = (int)words, m->positions = (int)positions, m->pieces = (int)pieces;
    m->begin = (int)begin, m->end = (int)end, m->unknown = (int)unknown;
    return AE_OK;
}

/* Marks of the model, which text never becomes: `<s>` in a memory is three characters. */
static int is_mark(const char *text, size_t bytes) {
    static const char *const marks[] = {"<s>", "</s>", "<pad>", "<unk>", "<mask>"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (strlen(marks[i]) == bytes && !memcmp(marks[i], text, bytes)) return 1;
    return 0;
}

static Status read_vocabulary(Model *m, Reader *r) {
    const size_t pieces = (size_t)m->pieces;
    uint64_t bytes = take_u64(r);
    const uint8_t *offsets = take(r, 4 * (pieces + 1)), *scores = take(r, 4 * pieces);
    if (r->short_of || bytes > UINT32_MAX || (uintptr_t)offsets % 4) return AE_VOCABULARY;
    m->piece_at = (const uint32_t *)(const void *)offsets;
    m->piece_score = (const float *)(const void *)scores;
    m->text = (const char *)take(r, (size_t)bytes);
    if (!m->text || m->piece_at[0] != 0 || m->piece_at[pieces] != bytes) return AE_VOCABULARY;
    size_t slots = 2;
    while (slots < 2 * pieces) slots *= 2;
    m->mask = (uint32_t)(slots - 1);
    if (!(m->table = calloc(slots, sizeof *m->table))) return AE_MEMORY;
    float least = 0;
    for (size_t i = 0; i < pieces; i++) {
        const uint32_t from = m->piece_at[i], to = m->piece_at[i + 1];
        if (to <= from || to > bytes || to - from > PIECE_BYTES_MOST || !isfinite(m->piece_score[i])) return AE_VOCABULARY;
        least = m->piece_score[i] < least ? m->piece_score[i] : least;
        if (is_mark(m->text + from, to - from)) continue;
        if ((int)(to - from) > m->longest) m->longest = (int)(to - from);
        uint64_t hash = 0;
        for (uint32_t k = from; k < to; k++) hash = piece_hash(hash, (uint8_t)m->text[k]);
        uint32_t slot = (uint32_t)(hash >> 20) & m->mask;
        while (m->table[slot]) slot = (slot + 1) & m->mask;
        m->table[slot] = (uint32_t)i + 1;
    }
    m->unknown_score = least - 10;
    return AE_OK;
}

static Status read_rules(Model *m, Reader *r) {
    const uint32_t rules = take_u32(r), bytes = take_u32(r);
    const uint8_t *begin = take(r, bytes);
    if (r->short_of || rules > RULES_MOST) return AE_RULES;
    Reader own = {begin, bytes, 0};
    if (!(m->rule_at = malloc(sizeof *m->rule_at * ((size_t)rules + 1)))) return AE_MEMORY;
    for (uint32_t i = 0, before = 0; i < rules; i++) {
        const size_t at = (size_t)(own.at - m->image);
        const uint32_t code = take_u32(&own);
        const uint8_t *count = take(&own, 1);
        if (!count || at > UINT32_MAX || code > 0x10ffff || (i && code <= before)) return AE_RULES;
        for (int k = *count; k > 0; k--)
            if (take_u32(&own) > 0x10ffff) return AE_RULES;
        if (own.short_of) return AE_RULES;
        m->rule_at[i] = (uint32_t)at, before = code;
    }
    if (own.left) return AE_RULES;
    m->rules = (int)rules;
    return AE_OK;
}

typedef struct {
    Reader first; /* where the list begins */
    uint32_t count;
} Tensors;

typedef struct {
    const char *name;
    size_t name_bytes;
    int kind; /* 0 float32, 1 four-bit */
    uint64_t values, offset, bytes;
} Tensor;

static Tensor next_tensor(Reader *r) {
    Tensor t = {0};
    const uint8_t *length = take(r, 2);
    t.name_bytes = length ? (size_t)(length[0] | length[1] << 8) : 0;
    t.name = (const char *)take(r, t.name_bytes);
    const uint8_t *kind = take(r, 1);
    t.kind = kind ? *kind : -1;
    t.values = take_u32(r), t.offset = take_u64(r), t.bytes = take_u64(r);
    return t;
}
/* The list is walked once, so that each of it is in bounds, whether it is used or not. */
static Status read_tensors(const Model *m, Reader *r, Tensors *tensors) {
    tensors->count = take_u32(r);
    tensors->first = *r;
    if (r->short_of || tensors->count > 4096) return AE_TENSORS;
    for (uint32_t i = 0; i < tensors->count; i++) {
        const Tensor t = next_tensor(r);
        if (r->short_of || (t.kind != 0 && t.kind != 1)) return AE_TENSORS;
        if (t.bytes != (t.kind ? t.values / BLOCK * BLOCK_BYTES : t.values * 4) || (t.kind && t.values % BLOCK)) return AE_TENSORS;
        if (t.offset > m->size || t.bytes > m->size - t.offset || t.offset % 4) return AE_TENSORS;
    }
    return AE_OK;
}
/* Return the data of a tensor that must have exactly this kind and so many values, NULL where there is none. */
static const uint8_t *tensor(const Model *m, const Tensors *tensors, int layer, const char *name, int kind, uint64_t values) {
    char wanted[32] = "";
    size_t length = 0;
    if (layer >= 0) {
        wanted[length++] = 'l';
        if (layer > 9) wanted[length++] = (char)('0' + layer / 10);
        wanted[length++] = (char)('0' + layer % 10);
        wanted[length++] = '.';
    }
    memcpy(wanted + length, name, strlen(name)); /* names are ours, and short */
    length += strlen(name);
    Reader r = tensors->first;
    for (uint32_t i = 0; i < tensors->count; i++) {
        const Tensor t = next_tensor(&r);
        if (t.name_bytes == length && !memcmp(t.name, wanted, length))
            return t.kind == kind && t.values == values ? m->image + t.offset : NULL;
    }
    return NULL;
}
static Status floats(const Model *m, const Tensors *tensors, int layer, const char *name, int values, const float **found) {
    const uint8_t *data = tensor(m, tensors, layer, name, 0, (uint64_t)values);
    if (!data || (uintptr_t)data % 4) return AE_TENSOR;
    *found = (const float *)(const void *)data;
    return all_finite(*found, (size_t)values) ? AE_OK : AE_NUMBER;
}

/* Half precision to float; there are no infinities in these files, so that exponent is a number as any other. */
static float half(const uint8_t *p) {
    const unsigned h = (unsigned)(p[0] | p[1] << 8), exponent = h >> 10 & 31;
    const float value = exponent ? ldexpf((float)((h & 1023) | 1024), (int)exponent - 25) : ldexpf((float)(h & 1023), -24);
    return h >> 15 ? -value : value;
}
/* Words outside of the vocabulary are never asked for. */
void word_row(const Model *m, int word, int place, float *row) {
    const int blocks = m->width / BLOCK;
    const uint8_t *p = m->word_rows + (size_t)word * (size_t)blocks * BLOCK_BYTES;
    for (int b = 0; b < blocks; b++, p += BLOCK_BYTES) {
        const float scale = half(p);
        for (int i = 0; i < 16; i++) {
            row[b * BLOCK + i] = scale * (float)((p[2 + i] & 15) - 8);
            row[b * BLOCK + 16 + i] = scale * (float)((p[2 + i] >> 4) - 8);
        }
    }
    const float *at = m->place + (size_t)place * (size_t)m->width;
    for (int i = 0; i < m->width; i++) row[i] += at[i] + m->kind[i];
}

/* One layer of `parts` tensors, whose outputs follow one another. */
static Status read_dense(const Model *m, const Tensors *tensors, int layer, const char *const *names, int parts, int in, int out,
                         Dense *d) {
    const int blocks = in / BLOCK, outs = out * parts;
    const size_t groups = (size_t)(outs / LANES) * (size_t)blocks;
    d->in = in, d->out = outs;
    d->weights = aligned_alloc(64, groups * GROUP_BYTES);
    d->scale = malloc(sizeof *d->scale * groups * LANES);
    d->bias = malloc(sizeof *d->bias * (size_t)outs);
    if (!d->weights || !d->scale || !d->bias) return AE_MEMORY;
    for (int part = 0; part < parts; part++) {
        char name[16];
        const float *bias;
        const size_t length = strlen(names[part]);
        memcpy(name, names[part], length);
        memcpy(name + length, ".b", 3);
        const Status status = floats(m, tensors, layer, name, out, &bias);
        if (status) return status;
        memcpy(d->bias + part * out, bias, sizeof *bias * (size_t)out);
        memcpy(name + length, ".w", 3);
        const uint8_t *p = tensor(m, tensors, layer, name, 1, (uint64_t)in * (uint64_t)out);
        if (!p) return AE_TENSOR;
        for (int row = part * out; row < (part + 1) * out; row++)
            for (int b = 0; b < blocks; b++, p += BLOCK_BYTES) {
                const size_t block = (size_t)(row / LANES) * (size_t)blocks + (size_t)b;
                const int lane = row % LANES;
                d->scale[block * LANES + (size_t)lane] = half(p);
                uint8_t *w = d->weights + block * GROUP_BYTES + lane * 4;
                for (int i = 0; i < 4; i++) memcpy(w + i * 64, p + 2 + i * 4, 4);
            }
    }
    return AE_OK;
}
static Status read_layer(Model *m, const Tensors *tensors, int at) {
    Layer *layer = &m->layer[at];
    const int w = m->width;
    Status status;
    if ((status = read_dense(m, tensors, at, (const char *const[]){"q", "k", "v"}, 3, w, w, &layer->qkv))) return status;
    if ((status = read_dense(m, tensors, at, (const char *const[]){"ao"}, 1, w, w, &layer->mix))) return status;
    if ((status = read_dense(m, tensors, at, (const char *const[]){"fi"}, 1, w, m->inner, &layer->up))) return status;
    if ((status = read_dense(m, tensors, at, (const char *const[]){"fo"}, 1, m->inner, w, &layer->down))) return status;
    if ((status = floats(m, tensors, at, "aln.w", w, &layer->norm1_w))) return status;
    if ((status = floats(m, tensors, at, "aln.b", w, &layer->norm1_b))) return status;
    if ((status = floats(m, tensors, at, "oln.w", w, &layer->norm2_w))) return status;
    return floats(m, tensors, at, "oln.b", w, &layer->norm2_b);
}
static Status read_all(Model *m) {
    Reader r = {m->image, m->size, 0};
    Tensors tensors;
    Status status;
    if ((status = read_header(m, &r))) return status;
    if ((status = read_vocabulary(m, &r))) return status;
    if ((status = read_rules(m, &r))) return status;
    if ((status = read_tensors(m, &r, &tensors))) return status;
    const int w = m->width;
    if (!(m->word_rows = tensor(m, &tensors, -1, "emb.word", 1, (uint64_t)m->words * (uint64_t)w))) return AE_TENSOR;
    if ((status = floats(m, &tensors, -1, "emb.pos", m->positions * w, &m->place))) return status;
    if ((status = floats(m, &tensors, -1, "emb.ln.w", w, &m->norm_w))) return status;
    if ((status = floats(m, &tensors, -1, "emb.ln.b", w, &m->norm_b))) return status;
    if ((status = floats(m, &tensors, -1, "emb.type", 2 * w, &m->kind))) return status;
    for (int i = 0; i < m->layers; i++)
        if ((status = read_layer(m, &tensors, i))) return status;
    return AE_OK;
}

/* image: the weights' file, mapped by the caller for as long as the model is open, at an address that 4 divides. */
Status ae_open(const uint8_t *image, size_t size, Instructions wanted, Model **opened) {
    if (!image || !opened) return AE_INPUT;
    *opened = NULL;
    if (wanted == AE_BEST) wanted = best_instructions();
    if (!has_instructions(wanted)) return AE_INSTRUCTIONS;
    Model *m = calloc(1, sizeof *m);
    if (!m) return AE_MEMORY;
    m->image = image, m->size = size, m->instructions = wanted;
    const Status status = read_all(m);
    if (status)
        ae_close(m);
    else
        *opened = m;
    return status;
}
static void free_dense(Dense *d) {
    free(d->weights);
    free(d->scale);
    free(d->bias);
}
/* No call may be in progress. */
void ae_close(Model *m) {
    if (!m) return;
    for (int i = 0; i < m->layers; i++) {
        free_dense(&m->layer[i].qkv);
        free_dense(&m->layer[i].mix);
        free_dense(&m->layer[i].up);
        free_dense(&m->layer[i].down);
    }
    free(m->table);
    free(m->rule_at);
    free(m);
}
int ae_width(const Model *m) { return m->width; }
int ae_positions(const Model *m) { return m->positions; }
int ae_instructions(const Model *m) { return m->instructions; }
int ae_interface(void) { return AE_INTERFACE; }
int ae_best_instructions(void) { return best_instructions(); }
