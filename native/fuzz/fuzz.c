/* Damages a weights' file and feeds odd texts, under sanitizers: fuzz WEIGHTS SEED ROUNDS [whole].
 * Every round copies the file into a block of exactly its size, so that a read past its end is seen, breaks it (not with
 * `whole`), and opens it. Whatever opens must make tokens and rows of any bytes. In every third round one of the engine's
 * allocations or its second thread is refused (linked with --wrap). Prints how often which status came. */
#include "../src/engine.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;
static uint32_t chance(uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

/* Opening takes 26 allocations of the small file, a call of it three. */
static int left = -1; /* allocations until one fails; none: -1 */
static int refused(void) { return left >= 0 && left-- == 0; }
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
void *__wrap_malloc(size_t n) { return refused() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return refused() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return refused() ? NULL : __real_realloc(p, n); }
void *__wrap_aligned_alloc(size_t a, size_t n) { return refused() ? NULL : __real_aligned_alloc(a, n); }
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *how, void *(*run)(void *), void *with) {
    return refused() ? EAGAIN : __real_pthread_create(t, how, run, with);
}
/* Call the engine with one of its next allocations refused, or none. */
#define CALL(IT, most_left)                   \
    do {                                      \
        left = scarce ? (int)chance(most_left) : -1; \
        came_of = (IT);                       \
        left = -1;                            \
    } while (0)

static void must(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    exit(3);
}

/* Structure is at the beginning and behind the vocabulary; bytes in the middle of weights only change numbers. */
static void damage(uint8_t *image, size_t size) {
    static const uint32_t odd[] = {0, 1, 2, 31, 33, 0x7f, 0xff, 0xffff, 0x10000, 0x7fffffff, 0x80000000u, 0xfffffffeu, 0xffffffffu};
    for (uint32_t times = 1 + chance(4); times > 0; times--) {
        const size_t span = chance(3) ? (size < 4096 ? size : 4096) : size;
        const size_t at = chance(4) ? chance((uint32_t)span) : chance(72);
        if (at + 8 > size) continue;
        uint64_t value = odd[chance(sizeof odd / sizeof *odd)];
        switch (chance(4)) {
        case 0: image[at] ^= (uint8_t)(1u << chance(8)); break;
        case 1: image[at] = (uint8_t)chance(256); break;
        case 2: memcpy(image + (at & ~(size_t)3), &value, 4); break;
        default: value <<= chance(33); memcpy(image + at, &value, 8);
        }
    }
}
static size_t odd_text(char *text, size_t room) {
    static const char *const parts[] = {"query: ", "passage: ", "</s>", "<s>", "<pad>", "a", " ", "\t", "ab", "\xef\xb7\xba",
                                        "\xe4\xbd\xa0", "\xf0\x9f\x99\x82", "e\xcc\x81", "\xc2\xa0", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\xc2", "\xe4\xbd", "\x01", "\0"};
    size_t n = 0;
    for (uint32_t left = chance(40); left > 0 && n + 8 < room; left--) {
        if (chance(4)) {
            const char *part = parts[chance(sizeof parts / sizeof *parts)];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        } else
            text[n++] = (char)chance(256);
    }
    return n;
}
static void use(const Model *m, int scarce) {
    enum { ROOM = 256, TEXTS = 3 };
    const int positions = ae_positions(m), width = ae_width(m);
    int32_t *ids = malloc(sizeof *ids * (size_t)positions * TEXTS), starts[TEXTS + 1] = {0}, count;
    float *rows = malloc(sizeof *rows * (size_t)width * TEXTS);
    int texts = 0;
    Status came_of;
    for (int i = 0; i < TEXTS; i++) {
        char *text = malloc(ROOM);
        const size_t n = odd_text(text, ROOM);
        text = realloc(text, n ? n : 1); /* exactly: reading behind it is seen */
        must(ae_tokens(m, text, n, NULL, 0, &count) == AE_OK && count >= 2, "a text has no tokens");
        const int most = 1 + (int)chance((uint32_t)positions);
        CALL(ae_tokens(m, text, n, ids + starts[texts], most, &count), 6);
        if (came_of == AE_OK) {
            starts[texts + 1] = starts[texts] + (count < most ? count : most);
            texts++;
        } else
            must(scarce && came_of == AE_MEMORY, "a text has no tokens");
        free(text);
    }
    if (texts) {
        const int threads = 1 + (int)chance(2);
        CALL(ae_embed(m, ids, starts, texts, threads, rows), 3);
        must(came_of == AE_OK || (scarce && came_of == AE_MEMORY), "tokens have no rows");
        const int32_t bad[] = {-1, INT32_MAX, PIECES_MOST};
        ids[chance((uint32_t)starts[texts])] = bad[chance(3)];
        must(ae_embed(m, ids, starts, texts, threads, rows) == AE_INPUT, "a token that is none has a row");
        starts[1] = chance(2) ? INT32_MAX : 0;
        must(ae_embed(m, ids, starts, texts, threads, rows) == AE_INPUT, "a text without tokens has a row");
    }
    free(ids);
    free(rows);
}
int main(int count, char **given) {
    if (count < 4) return 2;
    FILE *file = fopen(given[1], "rb");
    must(file && !fseek(file, 0, SEEK_END), "no file");
    const size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *whole = malloc(size);
    must(whole && fread(whole, 1, size, file) == size, "no file");
    fclose(file);
    state = strtoull(given[2], NULL, 10);
    const int rounds = atoi(given[3]), leave = count > 4;
    int came[AE_NUMBER + 1] = {0};
    for (int i = 0; i < rounds; i++) {
        const size_t length = leave || chance(8) ? size : chance((uint32_t)size + 1);
        uint8_t *image = malloc(length ? length : 1);
        memcpy(image, whole, length);
        if (!leave && length > 80) damage(image, length);
        Model *m = NULL;
        Instructions wanted;
        do wanted = (Instructions)chance(4);
        while (!has_instructions(wanted));
        const int scarce = i % 3 == 0;
        Status came_of;
        CALL(ae_open(image, length, wanted, &m), 30);
        must(came_of <= AE_NUMBER && (came_of == AE_OK) == (m != NULL), "a status without its model");
        must(came_of != AE_MEMORY || scarce, "no memory where there is some");
        came[came_of]++;
        if (m) use(m, scarce);
        ae_close(m);
        free(image);
    }
    free(whole);
    printf("[");
    for (int i = 0; i <= AE_NUMBER; i++) printf("%s%d", i ? ", " : "", came[i]);
    puts("]");
    return 0;
}
