/* Tokens to rows: the arithmetic chosen by what the processor has, on one thread or two. Everything a call needs is
 * allocated before its second thread starts, so nothing can fail while one waits for the other. */
#include "engine.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_SHUFFLE
#endif
#endif
#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 11)
#define COMPILES_AVX_VNNI
#endif

struct Job {
    const Model *model;
    const int32_t *ids, *starts;
    int tokens, threads;
    float *x, *qkv[2];
    Scratch scratch[2];
    atomic_int arrived;
    pthread_mutex_t lock;
    pthread_cond_t all_here;
};
typedef struct {
    Job *job;
    int me;
} Part;

static inline int lower(int a, int b) { return a < b ? a : b; }

/* Wait until both threads are behind this layer's keys and values: a short spin, since the parts are alike, then asleep,
 * since on a busy machine the other may not even be running. */
enum { SPINS = 2000 };
static void meet(Job *job, int layer) {
    const int wanted = 2 * (layer + 1);
    if (atomic_fetch_add(&job->arrived, 1) + 1 >= wanted) {
        pthread_mutex_lock(&job->lock);
        pthread_cond_signal(&job->all_here);
        pthread_mutex_unlock(&job->lock);
        return;
    }
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&job->arrived) >= wanted) return;
#if defined(__x86_64__)
        _mm_pause();
#endif
    }
    pthread_mutex_lock(&job->lock);
    while (atomic_load(&job->arrived) < wanted) pthread_cond_wait(&job->all_here, &job->lock);
    pthread_mutex_unlock(&job->lock);
}

#define UNROLL _Pragma("GCC unroll 8")
#if defined(__x86_64__)
#define WIDTH 16
#define TILE 8
#define ON(NAME) NAME##_avx512
#define FN static inline __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")))
#define STEP(C, V, X) (vi)_mm512_dpbusd_epi32((__m512i)(C), (__m512i)(V), (__m512i)(X))
#include "kernels.h"
#define WIDTH 8
#define TILE 4
#define ON(NAME) NAME##_avx2
#define FN static inline __attribute__((target("avx2,fma")))
/* 15 x 127 x 2 x 8 = 30,480: the eight products of a block are added in 16 bits, then widened */
#define STEP(C, V, X) (vi)_mm256_add_epi16((__m256i)(C), _mm256_maddubs_epi16((__m256i)(V), (__m256i)(X)))
#define START(Z) 0
#define WIDER(C, Z) (vi)_mm256_madd_epi16((__m256i)(C), _mm256_set1_epi16(1)) + (Z)
#include "kernels.h"
#endif
#if defined(COMPILES_AVX_VNNI)
#define WIDTH 8
#define TILE 4
#define ON(NAME) NAME##_avx_vnni
#define FN static inline __attribute__((target("avxvnni,avx2,fma")))
#define STEP(C, V, X) (vi)_mm256_dpbusd_avx_epi32((__m256i)(C), (__m256i)(V), (__m256i)(X))
#include "kernels.h"
#endif
#define WIDTH 4
#define TILE 4
#define ON(NAME) NAME##_generic
#define FN static inline
#include "kernels.h"

static void run(Job *job, int me) {
    switch (job->model->instructions) {
#if defined(__x86_64__)
    case AE_AVX512_VNNI: run_avx512(job, me); return;
    case AE_AVX2: run_avx2(job, me); return;
#endif
#if defined(COMPILES_AVX_VNNI)
    case AE_AVX_VNNI: run_avx_vnni(job, me); return;
#endif
    default: run_generic(job, me);
    }
}
static void *run_part(void *given) {
    const Part *part = given;
    run(part->job, part->me);
    return NULL;
}

/* By CPUID itself, and by what the system saves of the registers: __builtin_cpu_supports denies some in Clang's library. */
int has_instructions(Instructions wanted) {
    if (wanted == AE_GENERIC) return 1;
#if defined(__x86_64__)
    enum { FMA = 1u << 12, OSXSAVE = 1u << 27 };
    unsigned a, b, c, d, saved, high, more, none;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (~c & (FMA | OSXSAVE))) return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 5 & 1)) return 0; /* AVX2 */
    if (wanted == AE_AVX2) return 1;
    if (wanted == AE_AVX512_VNNI) /* F, DQ, BW, VL and VNNI */
        return (saved & 0xe6) == 0xe6 && (b >> 16 & 3) == 3 && b >> 30 == 3 && (c >> 11 & 1);
#if defined(COMPILES_AVX_VNNI)
    if (wanted == AE_AVX_VNNI) return a && __get_cpuid_count(7, 1, &more, &none, &none, &none) && (more >> 4 & 1);
#endif
    (void)more, (void)none;
#endif
    return 0;
}
Instructions best_instructions(void) {
    static const Instructions by_speed[] = {AE_AVX512_VNNI, AE_AVX_VNNI, AE_AVX2};
    for (size_t i = 0; i < sizeof by_speed / sizeof *by_speed; i++)
        if (has_instructions(by_speed[i])) return by_speed[i];
    return AE_GENERIC;
}

/* Return `count` numbers of `size` bytes from what was allocated, NULL while it is only counted. */
static void *part_of(char *space, size_t *used, size_t count, size_t size) {
    char *part = space ? space + *used : NULL;
    *used += (count * size + 63) / 64 * 64;
    return part;
}
static size_t lay_out(Job *job, char *space) {
    const size_t w = (size_t)job->model->width, inner = (size_t)job->model->inner, n = (size_t)job->tokens;
    const size_t chunk = n < CHUNK ? n : CHUNK;
    size_t used = 0;
    job->x = part_of(space, &used, n * w, sizeof(float));
    for (int i = 0; i < 2; i++) job->qkv[i] = part_of(space, &used, n * w * 3, sizeof(float));
    for (int i = 0; i < job->threads; i++) {
        Scratch *s = &job->scratch[i];
        const size_t widest = w > inner ? w : inner;
        s->context = part_of(space, &used, chunk * w, sizeof(float));
        s->mixed = part_of(space, &used, chunk * w, sizeof(float));
        s->inner = part_of(space, &used, chunk * inner, sizeof(float));
        s->quantised.bytes = part_of(space, &used, chunk * widest, 1);
        s->quantised.scale = part_of(space, &used, chunk * widest / BLOCK, sizeof(float));
        s->quantised.zero = part_of(space, &used, chunk * widest / BLOCK, sizeof(int32_t));
    }
    return used;
}
/* The second thread takes no signals: Python's handlers belong to its own threads. */
static int start_second(pthread_t *thread, Part *part) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(thread, NULL, run_part, part);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}
static void run_all(Job *job) {
    pthread_t second;
    Part part = {job, 1};
    if (job->threads == 1) {
        run(job, 0);
        return;
    }
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->all_here, NULL);
    if (start_second(&second, &part)) {
        run(job, 0);
        pthread_join(second, NULL);
    } else {
        job->threads = 1;
        run(job, 0);
    }
    pthread_cond_destroy(&job->all_here);
    pthread_mutex_destroy(&job->lock);
}
static void mean_row(const float *x, int tokens, int w, float *row) {
    double squares = 0;
    memset(row, 0, sizeof *row * (size_t)w);
    for (int t = 0; t < tokens; t++, x += w)
        for (int k = 0; k < w; k++) row[k] += x[k];
    for (int k = 0; k < w; k++) squares += (double)row[k] * row[k];
    const double by = 1 / sqrt(squares > 1e-24 ? squares : 1e-24);
    for (int k = 0; k < w; k++) row[k] = (float)(row[k] * by);
}

/* ids: all texts' tokens, one after another; starts: texts + 1 offsets into them, the first 0; a text has 1 to `positions`
 * tokens. rows: room for texts x width floats. threads: 2 shares a call of at least 27 tokens; the rows are the same. */
Status ae_embed(const Model *m, const int32_t *ids, const int32_t *starts, int texts, int threads, float *rows) {
    if (!m || !ids || !starts || !rows || texts < 1 || texts > CALL_TOKENS_MOST || starts[0] != 0) return AE_INPUT;
    for (int i = 0; i < texts; i++) {
        const int64_t tokens = (int64_t)starts[i + 1] - starts[i];
        if (tokens < 1 || tokens > m->positions || starts[i + 1] > CALL_TOKENS_MOST) return AE_INPUT;
    }
    const int tokens = starts[texts];
    for (int t = 0; t < tokens; t++)
        if (ids[t] < 0 || ids[t] >= m->pieces) return AE_INPUT;
    Job job = {.model = m, .ids = ids, .starts = starts, .tokens = tokens, .threads = threads > 1 && tokens >= SHARED_TOKENS ? 2 : 1};
    char *space = aligned_alloc(64, lay_out(&job, NULL));
    if (!space) return AE_MEMORY;
    lay_out(&job, space);
    run_all(&job);
    for (int i = 0; i < texts; i++)
        mean_row(job.x + (size_t)starts[i] * (size_t)m->width, starts[i + 1] - starts[i], m->width, rows + (size_t)i * (size_t)m->width);
    free(space);
    return AE_OK;
}
