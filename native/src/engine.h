/* The engine's parts and what they share. weights.c reads a file into a Model, tokens.c makes tokens of text, kernels.h
 * has the arithmetic, once for each instruction set, and embed.c makes rows of tokens.
 *
 * A Model is never written after ae_open, so any number of threads may use one. There is no other state. */
#ifndef ENGINE_H
#define ENGINE_H
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the weights are little-endian, and read in place"
#endif

enum {
    AE_INTERFACE = 1, /* what Python compares; it changes with any function below */
    BLOCK = 32,       /* inputs that share a scale */
    LANES = 16,       /* outputs side by side */
    GROUP_BYTES = BLOCK * LANES / 2,
    BLOCK_BYTES = 18, /* of the file: a half-precision scale, 32 half bytes */
    CHUNK = 64,       /* tokens at once: what they need stays in the second-level cache */
    HEAD = 32,        /* numbers of an attention head */
    LAYERS_MOST = 24,
    WIDTH_MOST = 1024,
    INNER_MOST = 4096,
    TOKENS_MOST = 512,         /* of one text */
    CALL_TOKENS_MOST = 1 << 16, /* of one call */
    SHARED_TOKENS = 27,        /* a call of fewer gains nothing from a second thread (measured) */
    PIECES_MOST = 1 << 20,
    PIECE_BYTES_MOST = 1024,
    RULES_MOST = 1 << 16,
    TEXT_BYTES_MOST = 1 << 22,
};

/* What a call returns. From AE_HEADER on: what is wrong with the weights. */
typedef enum {
    AE_OK,
    AE_MEMORY,
    AE_INPUT,
    AE_INSTRUCTIONS, /* this processor does not have them */
    AE_HEADER,
    AE_SIZES,
    AE_VOCABULARY,
    AE_RULES,
    AE_TENSORS,
    AE_TENSOR,
    AE_NUMBER, /* one that is not finite */
} Status;

typedef enum { AE_GENERIC, AE_AVX2, AE_AVX_VNNI, AE_AVX512_VNNI, AE_BEST = -1 } Instructions;

/* y = x W' + bias. weights: groups of 16 outputs; in each a block of 32 inputs is 4 x 64 bytes, of 16 outputs x 4 inputs,
 * inputs 4j.. in the low and 16 + 4j.. in the high half bytes. They stay unsigned (0..15): "minus 8" is one number for a
 * token and a block, with which its sum begins. */
typedef struct {
    int in, out;
    uint8_t *weights;
    float *scale, *bias;
} Dense;

typedef struct {
    Dense qkv, mix, up, down;
    const float *norm1_w, *norm1_b, *norm2_w, *norm2_b;
} Layer;

typedef struct {
    const uint8_t *image; /* the weights' file, mapped by the caller */
    size_t size;
    int width, layers, heads, inner, positions, words, pieces;
    int begin, end, unknown; /* tokens */
    float eps, unknown_score;
    const uint8_t *word_rows;
    const float *place, *kind, *norm_w, *norm_b;
    Layer layer[LAYERS_MOST];
    const uint32_t *piece_at; /* pieces + 1 offsets into `text` */
    const float *piece_score;
    const char *text;
    uint32_t *table, mask; /* hash of a piece's text -> its number + 1 */
    int longest;
    uint32_t *rule_at; /* offsets of the normalising rules into the image, by code point */
    int rules;
    Instructions instructions;
} Model;

/* Activations as signed bytes: by token and block a scale, and -8 times the block's sum. */
typedef struct {
    int8_t *bytes;
    float *scale;
    int32_t *zero;
} Quantised;

/* What a thread of a call works in: CHUNK tokens, or fewer where there are fewer. */
typedef struct {
    float *context, *mixed, *inner;
    Quantised quantised;
} Scratch;

typedef struct Job Job;

uint64_t piece_hash(uint64_t hash, uint8_t byte);
void word_row(const Model *m, int word, int place, float *row);
Instructions best_instructions(void);
int has_instructions(Instructions wanted);

#define AE_API __attribute__((visibility("default")))
AE_API int ae_interface(void);
AE_API int ae_best_instructions(void);
AE_API Status ae_open(const uint8_t *image, size_t size, Instructions wanted, Model **opened);
AE_API void ae_close(Model *m);
AE_API int ae_instructions(const Model *m);
AE_API int ae_width(const Model *m);
AE_API int ae_positions(const Model *m);
AE_API Status ae_tokens(const Model *m, const char *text, size_t bytes, int32_t *ids, int most, int32_t *count);
AE_API Status ae_embed(const Model *m, const int32_t *ids, const int32_t *starts, int texts, int threads, float *rows);
#endif
