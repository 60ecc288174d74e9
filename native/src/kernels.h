/* The arithmetic of one thread of a call, included once for each instruction set by embed.c, which sets before:
 *   WIDTH    floats of a vector: 16, 8 or 4            ON(NAME)  a function's name for this set
 *   FN       how its functions are declared            TILE      tokens side by side in registers
 *   STEP(C, V, X)  adds to the sums C the products of four weights V (unsigned) and four activations X (signed)
 *   START(Z), WIDER(C, Z)  where the sums begin, and how they become 32 bits; Z is the block's "minus 8"
 * Everything is in GCC's and Clang's vector types; only STEP needs intrinsics, and the generic one none. */
#define INL FN __attribute__((always_inline))
#define vf ON(vf)
#define vi ON(vi)
#define vb ON(vb)
#define vh ON(vh)
#define load ON(load)
typedef float vf __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));
typedef int8_t vb __attribute__((vector_size(WIDTH), aligned(1), may_alias));
#ifndef STEP /* the products of bytes in 16-bit lanes: 15 x 127 x 2 x 8 = 30,480 fits */
typedef int16_t vh __attribute__((vector_size(WIDTH * 4)));
#define STEP(C, V, X) (vi)((vh)(C) + ((vh)(V) & 255) * ((vh)(X) << 8 >> 8) + ((vh)(V) >> 8) * ((vh)(X) >> 8))
#define START(Z) 0
#define WIDER(C, Z) (((C) << 16 >> 16) + ((C) >> 16) + (Z))
#endif
#ifndef WIDER
#define START(Z) (Z)
#define WIDER(C, Z) (C)
#endif
INL vf load(const float *p) { return *(const vf *)p; }
INL void ON(store)(float *p, vf v) { *(vf *)p = v; }

/* Sixteen outputs (group `g`) of `n` tokens; n is constant where this is inlined, so the sums stay in registers. */
INL void ON(tile)(const Dense *d, int g, Quantised a, const int n, float *y) {
    const int blocks = d->in / BLOCK;
    for (int lane = 0; lane < LANES; lane += WIDTH) {
        const uint8_t *w = d->weights + (size_t)g * (size_t)blocks * GROUP_BYTES + lane * 4;
        const float *scale = d->scale + (size_t)g * (size_t)blocks * LANES + lane;
        vf sum[TILE];
        UNROLL for (int t = 0; t < n; t++) sum[t] = load(d->bias + g * LANES + lane);
        for (int b = 0; b < blocks; b++, w += GROUP_BYTES, scale += LANES) {
            vi part[TILE];
            UNROLL for (int t = 0; t < n; t++) part[t] = (vi){0} + START(a.zero[t * blocks + b]);
            UNROLL for (int j = 0; j < 8; j++) {
                vi v = *(const vi *)(w + (j & 3) * 64);
                v = (j < 4 ? v : v >> 4) & 0x0f0f0f0f;
                UNROLL for (int t = 0; t < n; t++) {
                    int32_t four;
                    memcpy(&four, a.bytes + (size_t)t * (size_t)d->in + b * BLOCK + j * 4, 4);
                    part[t] = STEP(part[t], v, (vi){0} + four);
                }
            }
            const vf s = load(scale);
            UNROLL for (int t = 0; t < n; t++) {
                const vi whole = WIDER(part[t], a.zero[t * blocks + b]);
                sum[t] += __builtin_convertvector(whole, vf) * (s * a.scale[t * blocks + b]);
            }
        }
        UNROLL for (int t = 0; t < n; t++) ON(store)(y + (size_t)t * (size_t)d->out + g * LANES + lane, sum[t]);
    }
}
#define CASE(N)                                                  \
    case N:                                                      \
        ON(tile)(d, g, a, N, y + (size_t)t * (size_t)d->out); \
        break;
FN void ON(dense)(const Dense *d, Quantised all, int n, float *y) {
    const int blocks = d->in / BLOCK;
    for (int g = 0; g < d->out / LANES; g++)
        for (int t = 0; t < n; t += TILE) {
            const Quantised a = {all.bytes + (size_t)t * (size_t)d->in, all.scale + t * blocks, all.zero + t * blocks};
            switch (n - t) {
                CASE(1)
                CASE(2)
                CASE(3)
#if TILE == 8
                CASE(4)
                CASE(5)
                CASE(6)
                CASE(7)
#endif
            default: ON(tile)(d, g, a, TILE, y + (size_t)t * (size_t)d->out);
            }
        }
}

#ifdef HAS_SHUFFLE
#if WIDTH == 16
#define SWAP(V, K) \
    __builtin_shufflevector(V, V, 0 ^ K, 1 ^ K, 2 ^ K, 3 ^ K, 4 ^ K, 5 ^ K, 6 ^ K, 7 ^ K, 8 ^ K, 9 ^ K, 10 ^ K, 11 ^ K, 12 ^ K, 13 ^ K, 14 ^ K, 15 ^ K)
#define FOLD(V, OP) (V = OP(V, SWAP(V, 8)), V = OP(V, SWAP(V, 4)), V = OP(V, SWAP(V, 2)), V = OP(V, SWAP(V, 1)), V[0])
#elif WIDTH == 8
#define SWAP(V, K) __builtin_shufflevector(V, V, 0 ^ K, 1 ^ K, 2 ^ K, 3 ^ K, 4 ^ K, 5 ^ K, 6 ^ K, 7 ^ K)
#define FOLD(V, OP) (V = OP(V, SWAP(V, 4)), V = OP(V, SWAP(V, 2)), V = OP(V, SWAP(V, 1)), V[0])
#else
#define SWAP(V, K) __builtin_shufflevector(V, V, 0 ^ K, 1 ^ K, 2 ^ K, 3 ^ K)
#define FOLD(V, OP) (V = OP(V, SWAP(V, 2)), V = OP(V, SWAP(V, 1)), V[0])
#endif
INL vi ON(larger)(vi a, vi b) {
    const vi m = a > b;
    return (a & m) | (b & ~m);
}
INL vf ON(plus_f)(vf a, vf b) { return a + b; }
INL vi ON(plus_i)(vi a, vi b) { return a + b; }
INL float ON(total)(vf v) { return FOLD(v, ON(plus_f)); }
INL int32_t ON(total_i)(vi v) { return FOLD(v, ON(plus_i)); }
INL int32_t ON(largest)(vi v) { return FOLD(v, ON(larger)); }
#undef SWAP
#undef FOLD
#else /* older compilers */
INL vi ON(larger)(vi a, vi b) {
    const vi m = a > b;
    return (a & m) | (b & ~m);
}
INL float ON(total)(vf v) {
    for (int i = 1; i < WIDTH; i++) v[0] += v[i];
    return v[0];
}
INL int32_t ON(total_i)(vi v) {
    for (int i = 1; i < WIDTH; i++) v[0] += v[i];
    return v[0];
}
INL int32_t ON(largest)(vi v) {
    for (int i = 1; i < WIDTH; i++) v[0] = v[i] > v[0] ? v[i] : v[0];
    return v[0];
}
#endif

INL vf ON(exp_neg)(vf x) { /* e^x for x <= 0; 0 below -87, and for what is no number */
    const vi keep = x > -87.0f;
    x = (vf)((vi)x & keep);
    const vi n = __builtin_convertvector(x * 1.44269504f - 0.5f, vi);
    const vf k = __builtin_convertvector(n, vf), r = x - k * 0.693359375f + k * 2.12194440e-4f;
    const vf p = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f + r * 0.00138888889f)))));
    return (vf)((vi)(p * (vf)((n + 127) << 23)) & keep);
}
INL vf ON(gelu)(vf x) { /* x times the normal distribution at x, with erf to 1.5e-7 (Abramowitz and Stegun 7.1.26) */
    const vf size = (vf)((vi)x & 0x7fffffff), z = size * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z);
    const vf p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    return (vf)((vi)x & (x > 0.0f)) - 0.5f * size * p * ON(exp_neg)(-z * z);
}
INL void ON(quantise)(const float *x, int n, int in, Quantised to) {
    const float magic = 12582912.0f; /* 1.5 x 2^23: adding it rounds to the nearest */
    int8_t *q = to.bytes;
    for (int i = 0; i < n * in / BLOCK; i++, x += BLOCK, q += BLOCK) {
        vi most = {0}, all = {0};
        for (int k = 0; k < BLOCK; k += WIDTH) most = ON(larger)(most, (vi)load(x + k) & 0x7fffffff);
        const int32_t bits = ON(largest)(most); /* of positive floats the larger has the larger bits */
        float largest;
        memcpy(&largest, &bits, 4);
        const int usable = largest > 1e-30f && largest < 1e30f; /* damaged weights give numbers that are none */
        const float by = usable ? 127.0f / largest : 0.0f;
        for (int k = 0; k < BLOCK; k += WIDTH) {
            const vi v = ((vi)(load(x + k) * by + magic) - 0x4b400000) & -usable;
            *(vb *)(q + k) = __builtin_convertvector(v, vb);
            all += v;
        }
        to.scale[i] = usable ? largest / 127.0f : 0.0f;
        to.zero[i] = (int32_t)(-8u * (uint32_t)ON(total_i)(all));
    }
}
/* x = norm(x + y); y: NULL for nothing to add. */
INL void ON(add_norm)(float *x, const float *y, const float *weight, const float *bias, int n, int w, float eps) {
    for (int t = 0; t < n; t++, x += w, y += y ? w : 0) {
        vf sum = {0}, squares = {0};
        for (int i = 0; i < w; i += WIDTH) {
            vf a = load(x + i);
            if (y) a += load(y + i);
            ON(store)(x + i, a);
            sum += a;
        }
        const float mean = ON(total)(sum) / (float)w;
        for (int i = 0; i < w; i += WIDTH) {
            const vf a = load(x + i) - mean;
            squares += a * a;
        }
        const float by = 1.0f / sqrtf(ON(total)(squares) / (float)w + eps);
        for (int i = 0; i < w; i += WIDTH) ON(store)(x + i, (load(x + i) - mean) * by * load(weight + i) + load(bias + i));
    }
}
/* Attention of the rows [from, to) of one text, the tokens [first, last). qkv: a row has queries, keys and values. The keys
 * are turned once a head, so that WIDTH of them meet a number of the query in one vector. */
INL void ON(attend)(const float *qkv, int w, int heads, int first, int last, int from, int to, float *context) {
    enum { AT_ONCE = 4 * WIDTH, VECTORS = HEAD / WIDTH };
    const int n = last - first, padded = (n + WIDTH - 1) / WIDTH * WIDTH;
    const size_t row = 3 * (size_t)w;
    float keys[HEAD * TOKENS_MOST], p[TOKENS_MOST];
    for (int h = 0; h < heads; h++) {
        const float *k = qkv + (size_t)first * row + w + h * HEAD, *v = k + w;
        for (int s = 0; s < padded; s++)
            for (int e = 0; e < HEAD; e++) keys[e * padded + s] = s < n ? k[(size_t)s * row + e] * 0.17677669f : 0.0f; /* 1/sqrt 32 */
        for (int t = from; t < to; t++) {
            const float *q = qkv + (size_t)t * row + h * HEAD;
            vf all = {0}, even[VECTORS] = {0}, odd[VECTORS] = {0};
            float most = -1e30f;
            int s = 0;
            for (; s + AT_ONCE <= padded; s += AT_ONCE) {
                vf c[4] = {0};
                for (int e = 0; e < HEAD; e++) UNROLL for (int i = 0; i < 4; i++) c[i] += q[e] * load(keys + e * padded + s + i * WIDTH);
                for (int i = 0; i < 4; i++) ON(store)(p + s + i * WIDTH, c[i]);
            }
            for (; s < padded; s += WIDTH) {
                vf a = {0}, b = {0};
                for (int e = 0; e < HEAD; e += 2) {
                    a += q[e] * load(keys + e * padded + s);
                    b += q[e + 1] * load(keys + (e + 1) * padded + s);
                }
                ON(store)(p + s, a + b);
            }
            for (s = 0; s < n; s++) most = p[s] > most ? p[s] : most;
            for (; s < padded; s++) p[s] = -1e30f;
            for (s = 0; s < padded; s += WIDTH) {
                const vf e = ON(exp_neg)(load(p + s) - most);
                ON(store)(p + s, e);
                all += e;
            }
            for (s = 0; s + 1 < n; s += 2)
                UNROLL for (int i = 0; i < VECTORS; i++) {
                    even[i] += p[s] * load(v + (size_t)s * row + i * WIDTH);
                    odd[i] += p[s + 1] * load(v + (size_t)(s + 1) * row + i * WIDTH);
                }
            for (; s < n; s++)
                for (int i = 0; i < VECTORS; i++) even[i] += p[s] * load(v + (size_t)s * row + i * WIDTH);
            const float by = 1.0f / ON(total)(all);
            for (int i = 0; i < VECTORS; i++) ON(store)(context + (size_t)(t - from) * (size_t)w + h * HEAD + i * WIDTH, (even[i] + odd[i]) * by);
        }
    }
}
/* One thread's tokens through the whole model. Two threads wait for each other once a layer, after keys and values; these
 * have two buffers, since the quicker thread may be a layer ahead. */
FN void ON(run)(Job *job, int me) {
    const Model *m = job->model;
    const Scratch own = job->scratch[me];
    const Quantised a = own.quantised;
    const int w = m->width;
    const int begin = (int)((long)job->tokens * me / job->threads), end = (int)((long)job->tokens * (me + 1) / job->threads);
    for (int text = 0, t = begin; t < end; t++) {
        while (job->starts[text + 1] <= t) text++;
        word_row(m, job->ids[t], t - job->starts[text], job->x + (size_t)t * (size_t)w);
    }
    ON(add_norm)(job->x + (size_t)begin * (size_t)w, NULL, m->norm_w, m->norm_b, end - begin, w, m->eps);
    for (int l = 0; l < m->layers; l++) {
        const Layer *layer = &m->layer[l];
        float *qkv = job->qkv[l & 1];
        for (int t = begin; t < end; t += CHUNK) {
            const int n = lower(CHUNK, end - t);
            ON(quantise)(job->x + (size_t)t * (size_t)w, n, w, a);
            ON(dense)(&layer->qkv, a, n, qkv + (size_t)t * 3 * (size_t)w);
        }
        if (job->threads > 1) meet(job, l);
        for (int text = 0, t = begin, n; t < end; t += n) {
            n = lower(CHUNK, end - t);
            for (int from = t, to; from < t + n; from = to) {
                while (job->starts[text + 1] <= from) text++;
                to = lower(t + n, job->starts[text + 1]);
                ON(attend)(qkv, w, m->heads, job->starts[text], job->starts[text + 1], from, to, own.context + (size_t)(from - t) * (size_t)w);
            }
            float *x = job->x + (size_t)t * (size_t)w;
            ON(quantise)(own.context, n, w, a);
            ON(dense)(&layer->mix, a, n, own.mixed);
            ON(add_norm)(x, own.mixed, layer->norm1_w, layer->norm1_b, n, w, m->eps);
            ON(quantise)(x, n, w, a);
            ON(dense)(&layer->up, a, n, own.inner);
            for (int k = 0; k < n * m->inner; k += WIDTH) ON(store)(own.inner + k, ON(gelu)(load(own.inner + k)));
            ON(quantise)(own.inner, n, m->inner, a);
            ON(dense)(&layer->down, a, n, own.mixed);
            ON(add_norm)(x, own.mixed, layer->norm2_w, layer->norm2_b, n, w, m->eps);
        }
    }
}
#undef INL
#undef vf
#undef vi
#undef vb
#undef vh
#undef load
#undef CASE
#undef WIDTH
#undef ON
#undef FN
#undef TILE
#undef STEP
#undef START
#undef WIDER
