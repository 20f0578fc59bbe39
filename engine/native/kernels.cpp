// The arithmetic of a Llama-family forward pass over 4- and 8-bit weights, for a few rows at a time.
//
// What makes speculative decoding pay is that checking k + 1 rows costs hardly more than making one. On a CPU that takes
// integer dot products: activations are rounded to 8 bits for each row and group of 32 (as llama.cpp does), so that one
// instruction multiplies 32 or 64 pairs, and every weight is unpacked once for all rows.
//
// One rule keeps speculation lossless to the bit: what is computed for a row never depends on the other rows. Sums run
// in one order, rows never share an accumulator, and there is no fast-math. Threads split outputs, never a sum.
//
// Three paths compute the same integers: AVX-512 VNNI, AVX2, and plain C++ (which is also the code to read first).

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define HAVE_AVX2 1
#endif
#if defined(__AVX512VNNI__) && defined(__AVX512F__) && defined(__AVX512BW__)
#define HAVE_VNNI 1
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

constexpr int GROUP = 32;  // inputs that share a scale
constexpr int LANES = 16;  // outputs that are packed side by side
constexpr int QUADS = GROUP / 4;
constexpr int MAX_TILE = 4;  // rows whose sums are kept in registers together

using half = uint16_t;

inline float to_float(half h) {
#ifdef HAVE_AVX2
    return _cvtsh_ss(h);
#else
    _Float16 f;
    std::memcpy(&f, &h, 2);
    return static_cast<float>(f);
#endif
}

inline half to_half(float f) {
#ifdef HAVE_AVX2
    return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
#else
    _Float16 h = static_cast<_Float16>(f);
    half bits;
    std::memcpy(&bits, &h, 2);
    return bits;
#endif
}

// Packed weights. A tile holds one group of 32 inputs for 16 neighbouring outputs:
//   4 bits: 256 bytes; byte (pair p, lane o, b) = input 8p + b in its low half, input 8p + 4 + b in its high half;
//           then 16 scales and 16 minima: weight = scale * nibble + minimum
//   8 bits: 512 bytes; byte (quad j, lane o, b) = input 4j + b, signed; then 16 scales: weight = scale * byte
struct Tile4 {
    uint8_t quants[4][LANES][4];
    half scale[LANES];
    half minimum[LANES];
};
struct Tile8 {
    int8_t quants[QUADS][LANES][4];
    half scale[LANES];
};
static_assert(sizeof(Tile4) == 320 && sizeof(Tile8) == 544, "tiles are packed without gaps");

// A row of activations, rounded: value = scale * quant; total = scale * sum of the quants, for the minima.
struct Rounded {
    const int8_t *quants;
    const float *scale;
    const float *total;
};

inline void round_group(const float *x, int8_t *quants, float *scale, float *total) {
#ifdef HAVE_AVX2
    const __m256 v[4] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24)};
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 most = _mm256_max_ps(_mm256_max_ps(_mm256_andnot_ps(sign, v[0]), _mm256_andnot_ps(sign, v[1])),
                                _mm256_max_ps(_mm256_andnot_ps(sign, v[2]), _mm256_andnot_ps(sign, v[3])));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    const float largest = _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
#else
    float largest = 0.0f;
    for (int i = 0; i < GROUP; i++) largest = std::max(largest, std::fabs(x[i]));
#endif
    const float step = largest / 127.0f;
    const float inverse = step > 0.0f ? 1.0f / step : 0.0f;
#ifdef HAVE_AVX2
    __m256i q[4];  // rounded to nearest, ties to even, like nearbyintf
    for (int p = 0; p < 4; p++) q[p] = _mm256_cvtps_epi32(_mm256_mul_ps(v[p], _mm256_set1_ps(inverse)));
    const __m256i all = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    __m128i part = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    part = _mm_add_epi32(part, _mm_shuffle_epi32(part, 0x4E));
    part = _mm_add_epi32(part, _mm_shuffle_epi32(part, 0xB1));
    const int sum = _mm_cvtsi128_si32(part);
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing works within halves of a register
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(quants), _mm256_permutevar8x32_epi32(bytes, order));
#else
    int sum = 0;
    for (int i = 0; i < GROUP; i++) {
        const int q = static_cast<int>(std::nearbyintf(x[i] * inverse));
        quants[i] = static_cast<int8_t>(q);
        sum += q;
    }
#endif
    *scale = step;
    *total = step * static_cast<float>(sum);
}

inline void round_row(const float *x, int n, int8_t *quants, float *scale, float *total) {
    for (int g = 0; g < n / GROUP; g++) round_group(x + g * GROUP, quants + g * GROUP, scale + g, total + g);
}

// ---- 16 outputs of one row, or of a few rows over the same weights ---------------------------------------------------

#ifdef HAVE_VNNI

using Sums = __m512;
inline Sums zero() { return _mm512_setzero_ps(); }
inline void store(float *out, Sums s) { _mm512_storeu_ps(out, s); }
inline __m512 halves(const half *h) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(h))); }
inline __m512i quad(const int8_t *x, int j) {
    int32_t four;
    std::memcpy(&four, x + 4 * j, 4);
    return _mm512_set1_epi32(four);
}

template <int ROWS>
inline void dot(const Tile4 &tile, const Rounded *x, int g, Sums *sums) {
    const __m512i low = _mm512_set1_epi8(15);
    __m512i w[QUADS];
    for (int p = 0; p < 4; p++) {
        const __m512i both = _mm512_loadu_si512(tile.quants[p]);
        w[2 * p] = _mm512_and_si512(both, low);
        w[2 * p + 1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
    const __m512 scale = halves(tile.scale), minimum = halves(tile.minimum);
    for (int r = 0; r < ROWS; r++) {
        const int8_t *q = x[r].quants + g * GROUP;
        __m512i even = _mm512_setzero_si512(), odd = even;
        for (int j = 0; j < QUADS; j += 2) {
            even = _mm512_dpbusd_epi32(even, w[j], quad(q, j));
            odd = _mm512_dpbusd_epi32(odd, w[j + 1], quad(q, j + 1));
        }
        const __m512 whole = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
        const __m512 step = _mm512_mul_ps(scale, _mm512_set1_ps(x[r].scale[g]));
        sums[r] = _mm512_fmadd_ps(whole, step, sums[r]);
        sums[r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x[r].total[g]), sums[r]);
    }
}

template <int ROWS>
inline void dot(const Tile8 &tile, const Rounded *x, int g, Sums *sums) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(-128));
    const __m512 scale = halves(tile.scale);
    for (int r = 0; r < ROWS; r++) {
        const int8_t *q = x[r].quants + g * GROUP;
        __m512i sum = _mm512_setzero_si512(), offset = sum;
        for (int j = 0; j < QUADS; j++) {  // (w + 128) * q - 128 * q, since the instruction wants one side unsigned
            const __m512i four = quad(q, j);
            sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_loadu_si512(tile.quants[j]), flip), four);
            offset = _mm512_dpbusd_epi32(offset, flip, four);
        }
        const __m512 whole = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, offset));
        sums[r] = _mm512_fmadd_ps(whole, _mm512_mul_ps(scale, _mm512_set1_ps(x[r].scale[g])), sums[r]);
    }
}

#elif defined(HAVE_AVX2)

struct Sums {
    __m256 part[2];
};
inline Sums zero() { return {{_mm256_setzero_ps(), _mm256_setzero_ps()}}; }
inline void store(float *out, const Sums &s) {
    _mm256_storeu_ps(out, s.part[0]);
    _mm256_storeu_ps(out + 8, s.part[1]);
}
inline __m256 halves(const half *h) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(h))); }
inline __m256i quad(const int8_t *x, int j) {
    int32_t four;
    std::memcpy(&four, x + 4 * j, 4);
    return _mm256_set1_epi32(four);
}

// 8 * 2 * 15 * 127 fits 16 bits, so a whole group is summed in 16 bits and widened once.
template <int ROWS>
inline void dot(const Tile4 &tile, const Rounded *x, int g, Sums *sums) {
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i sum[ROWS][2];
    for (int r = 0; r < ROWS; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int p = 0; p < 4; p++) {
        __m256i first[2], second[2];
        for (int side = 0; side < 2; side++) {  // 8 outputs each
            const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(tile.quants[p][8 * side]));
            first[side] = _mm256_and_si256(both, low);
            second[side] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        }
        for (int r = 0; r < ROWS; r++) {
            const __m256i a = quad(x[r].quants + g * GROUP, 2 * p), b = quad(x[r].quants + g * GROUP, 2 * p + 1);
            for (int side = 0; side < 2; side++) {
                sum[r][side] = _mm256_add_epi16(sum[r][side], _mm256_maddubs_epi16(first[side], a));
                sum[r][side] = _mm256_add_epi16(sum[r][side], _mm256_maddubs_epi16(second[side], b));
            }
        }
    }
    for (int side = 0; side < 2; side++) {
        const __m256 scale = halves(tile.scale + 8 * side), minimum = halves(tile.minimum + 8 * side);
        for (int r = 0; r < ROWS; r++) {
            const __m256 whole = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[r][side], ones));
            const __m256 step = _mm256_mul_ps(scale, _mm256_set1_ps(x[r].scale[g]));
            __m256 &total = sums[r].part[side];
            total = _mm256_fmadd_ps(whole, step, total);
            total = _mm256_fmadd_ps(minimum, _mm256_set1_ps(x[r].total[g]), total);
        }
    }
}

template <int ROWS>
inline void dot(const Tile8 &tile, const Rounded *x, int g, Sums *sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[ROWS][2];
    for (int r = 0; r < ROWS; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int j = 0; j < QUADS; j++) {
        __m256i w[2], size[2];
        for (int side = 0; side < 2; side++) {
            w[side] = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(tile.quants[j][8 * side]));
            size[side] = _mm256_abs_epi8(w[side]);
        }
        for (int r = 0; r < ROWS; r++) {  // |w| * (q with w's sign): 2 * 127 * 127 fits 16 bits
            const __m256i q = quad(x[r].quants + g * GROUP, j);
            for (int side = 0; side < 2; side++) {
                const __m256i pairs = _mm256_maddubs_epi16(size[side], _mm256_sign_epi8(q, w[side]));
                sum[r][side] = _mm256_add_epi32(sum[r][side], _mm256_madd_epi16(pairs, ones));
            }
        }
    }
    for (int side = 0; side < 2; side++) {
        const __m256 scale = halves(tile.scale + 8 * side);
        for (int r = 0; r < ROWS; r++) {
            const __m256 step = _mm256_mul_ps(scale, _mm256_set1_ps(x[r].scale[g]));
            sums[r].part[side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][side]), step, sums[r].part[side]);
        }
    }
}

#else

struct Sums {
    float lane[LANES];
};
inline Sums zero() { return {}; }
inline void store(float *out, const Sums &s) { std::memcpy(out, s.lane, sizeof s.lane); }

template <int ROWS>
inline void dot(const Tile4 &tile, const Rounded *x, int g, Sums *sums) {
    for (int r = 0; r < ROWS; r++) {
        const int8_t *q = x[r].quants + g * GROUP;
        for (int o = 0; o < LANES; o++) {
            int sum = 0;
            for (int p = 0; p < 4; p++)
                for (int b = 0; b < 4; b++) {
                    const int both = tile.quants[p][o][b];
                    sum += (both & 15) * q[8 * p + b] + (both >> 4) * q[8 * p + 4 + b];
                }
            const float step = to_float(tile.scale[o]) * x[r].scale[g];
            sums[r].lane[o] = std::fma(static_cast<float>(sum), step, sums[r].lane[o]);
            sums[r].lane[o] = std::fma(to_float(tile.minimum[o]), x[r].total[g], sums[r].lane[o]);
        }
    }
}

template <int ROWS>
inline void dot(const Tile8 &tile, const Rounded *x, int g, Sums *sums) {
    for (int r = 0; r < ROWS; r++) {
        const int8_t *q = x[r].quants + g * GROUP;
        for (int o = 0; o < LANES; o++) {
            int sum = 0;
            for (int j = 0; j < QUADS; j++)
                for (int b = 0; b < 4; b++) sum += tile.quants[j][o][b] * q[4 * j + b];
            const float step = to_float(tile.scale[o]) * x[r].scale[g];
            sums[r].lane[o] = std::fma(static_cast<float>(sum), step, sums[r].lane[o]);
        }
    }
}

#endif

template <class Tile, int ROWS>
inline void block(const Tile *tiles, int groups, const Rounded *x, float (*out)[LANES]) {
    Sums sums[ROWS];
    for (int r = 0; r < ROWS; r++) sums[r] = zero();
    for (int g = 0; g < groups; g++) dot<ROWS>(tiles[g], x, g, sums);
    for (int r = 0; r < ROWS; r++) store(out[r], sums[r]);
}

// One block of 16 outputs for any number of rows; `out` has a line for each row.
template <class Tile>
inline void block_rows(const Tile *tiles, int groups, const Rounded *x, int rows, float (*out)[LANES]) {
    for (; rows >= MAX_TILE; rows -= MAX_TILE, x += MAX_TILE, out += MAX_TILE) block<Tile, MAX_TILE>(tiles, groups, x, out);
    switch (rows) {
        case 3: block<Tile, 3>(tiles, groups, x, out); break;
        case 2: block<Tile, 2>(tiles, groups, x, out); break;
        case 1: block<Tile, 1>(tiles, groups, x, out); break;
        default: break;
    }
}


// ---- small vector functions; loops over a fixed number of lanes, which the compiler turns into vector instructions ---

constexpr int SUM_LANES = 16;

inline float sum_of_squares(const float *x, int n) {
    float lane[SUM_LANES] = {};
    for (int i = 0; i < n; i += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++) lane[l] += x[i + l] * x[i + l];
    float sum = 0.0f;
    for (float part : lane) sum += part;
    return sum;
}

inline void rms_norm(const float *x, const float *weight, int n, float epsilon, float *out) {
    const float inverse = 1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + epsilon);
    for (int i = 0; i < n; i++) out[i] = x[i] * inverse * weight[i];
}

// e^x, x held to [-87, 87], to about 2 units in the last place: 2^n * polynomial on [-ln2/2, ln2/2] (Cephes, expf).
inline float exponential(float x) {
    x = x > -87.0f ? x : -87.0f;
    x = x < 87.0f ? x : 87.0f;
    const float n = std::nearbyintf(x * 1.44269504f);
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return p * power;
}

constexpr int STRIP = 16;  // keys of so many positions are kept side by side, so that scores need no sums across lanes

// A strip of 16 positions of one head's keys: half floats [dim][16]. Values are plain: [position][dim].
inline half *key_at(half *keys, int64_t position, int dim) {
    return keys + position / STRIP * STRIP * dim + position % STRIP;
}

// scores[h][0..15] = scale * q[h] . key, for the positions of one strip.
template <int HEADS>
inline void score_strip(const float *q, const half *strip, int dim, float scale, float *scores, int64_t stride) {
#ifdef HAVE_AVX2
    __m256 sum[HEADS][2];
    for (int h = 0; h < HEADS; h++) sum[h][0] = sum[h][1] = _mm256_setzero_ps();
    for (int d = 0; d < dim; d++) {
        const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(strip + d * STRIP)));
        const __m256 b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(strip + d * STRIP + 8)));
        for (int h = 0; h < HEADS; h++) {
            const __m256 f = _mm256_broadcast_ss(q + h * dim + d);
            sum[h][0] = _mm256_fmadd_ps(f, a, sum[h][0]);
            sum[h][1] = _mm256_fmadd_ps(f, b, sum[h][1]);
        }
    }
    const __m256 factor = _mm256_set1_ps(scale);
    for (int h = 0; h < HEADS; h++) {
        _mm256_storeu_ps(scores + h * stride, _mm256_mul_ps(factor, sum[h][0]));
        _mm256_storeu_ps(scores + h * stride + 8, _mm256_mul_ps(factor, sum[h][1]));
    }
#else
    for (int h = 0; h < HEADS; h++)
        for (int p = 0; p < STRIP; p++) {
            float sum = 0.0f;
            for (int d = 0; d < dim; d++) sum = std::fma(q[h * dim + d], to_float(strip[d * STRIP + p]), sum);
            scores[h * stride + p] = scale * sum;
        }
#endif
}

// out[h] = sum of weights[h][position] * value over all positions in order; 16 of a value's numbers at a time.
template <int HEADS>
inline void mix_values(const half *values, int n, int dim, const float *weights, int64_t stride, float *out) {
    for (int d = 0; d < dim; d += 16) {
#ifdef HAVE_AVX2
        __m256 sum[HEADS][2];
        for (int h = 0; h < HEADS; h++) sum[h][0] = sum[h][1] = _mm256_setzero_ps();
        for (int i = 0; i < n; i++) {
            const half *v = values + static_cast<int64_t>(i) * dim + d;
            const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(v)));
            const __m256 b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(v + 8)));
            for (int h = 0; h < HEADS; h++) {
                const __m256 f = _mm256_broadcast_ss(weights + h * stride + i);
                sum[h][0] = _mm256_fmadd_ps(f, a, sum[h][0]);
                sum[h][1] = _mm256_fmadd_ps(f, b, sum[h][1]);
            }
        }
        for (int h = 0; h < HEADS; h++) {
            _mm256_storeu_ps(out + h * dim + d, sum[h][0]);
            _mm256_storeu_ps(out + h * dim + d + 8, sum[h][1]);
        }
#else
        for (int h = 0; h < HEADS; h++)
            for (int l = d; l < d + 16; l++) {
                float sum = 0.0f;
                for (int i = 0; i < n; i++)
                    sum = std::fma(weights[h * stride + i], to_float(values[static_cast<int64_t>(i) * dim + l]), sum);
                out[h * dim + l] = sum;
            }
#endif
    }
}

// scores[0..n) -> weights e^(score - largest), and one over their sum. The last strip is filled up with e^-87, which
// is too small to change a sum.
inline float soften(float *scores, int n) {
    const int padded = (n + STRIP - 1) / STRIP * STRIP;
    for (int i = n; i < padded; i++) scores[i] = -INFINITY;
    float lane[STRIP], largest = scores[0];
    for (int l = 0; l < STRIP; l++) lane[l] = scores[l];
    for (int i = STRIP; i < padded; i += STRIP)
        for (int l = 0; l < STRIP; l++) lane[l] = scores[i + l] > lane[l] ? scores[i + l] : lane[l];
    for (float part : lane) largest = std::max(largest, part);
    for (float &part : lane) part = 0.0f;
    for (int i = 0; i < padded; i += STRIP)
        for (int l = 0; l < STRIP; l++) {
            const float e = exponential(scores[i + l] - largest);
            scores[i + l] = e;
            lane[l] += e;
        }
    float sum = 0.0f;
    for (float part : lane) sum += part;
    return 1.0f / sum;
}

// The query heads of one row that share a key head, over positions 0..n-1, in order whatever else is computed beside them.
template <int HEADS>
inline void attend(const float *q, const half *keys, const half *values, int n, int dim, float scale, float *scores,
                   int64_t stride, float *out) {
    for (int i = 0; i < n; i += STRIP) score_strip<HEADS>(q, keys + static_cast<int64_t>(i) * dim, dim, scale, scores + i, stride);
    float inverse[HEADS];
    for (int h = 0; h < HEADS; h++) inverse[h] = soften(scores + h * stride, n);
    mix_values<HEADS>(values, n, dim, scores, stride, out);
    for (int h = 0; h < HEADS; h++)
        for (int d = 0; d < dim; d++) out[h * dim + d] *= inverse[h];
}

inline void attend_heads(int heads, const float *q, const half *keys, const half *values, int n, int dim, float scale,
                         float *scores, int64_t stride, float *out) {
    for (; heads >= 4; heads -= 4, q += 4 * dim, out += 4 * dim) attend<4>(q, keys, values, n, dim, scale, scores, stride, out);
    switch (heads) {
        case 3: attend<3>(q, keys, values, n, dim, scale, scores, stride, out); break;
        case 2: attend<2>(q, keys, values, n, dim, scale, scores, stride, out); break;
        case 1: attend<1>(q, keys, values, n, dim, scale, scores, stride, out); break;
        default: break;
    }
}

// Rotary embedding of one head. interleaved: pairs (2i, 2i + 1), as GGUF keeps Llama's rows; else pairs (i, i + dim/2).
inline void rotate(float *x, const float *cosine, const float *sine, int dim, bool interleaved) {
    const int step = interleaved ? 2 : 1, far = interleaved ? 1 : dim / 2;
    for (int i = 0; i < dim / 2; i++) {
        const float a = x[step * i], b = x[step * i + far];
        x[step * i] = a * cosine[i] - b * sine[i];
        x[step * i + far] = a * sine[i] + b * cosine[i];
    }
}

}  // namespace

extern "C" {

struct Linear {
    const void *tiles;  // [outputs / 16][inputs / 32] tiles
    const float *bias;  // [outputs] or null
    int32_t bits;       // 4 or 8
    int32_t inputs;
    int32_t outputs;    // a multiple of 16
};

struct Layer {
    const float *attention_norm, *mlp_norm;
    const float *query_norm, *key_norm;  // [dim] or null
    Linear qkv, out, gate_up, down;      // gate_up: blocks of 16 gate and 16 up outputs in turn
};

struct Shape {
    int32_t layers, hidden, heads, kv_heads, dim, mlp, interleaved;
    float epsilon, scale;
};

// One row of the pass: where it stands, and where its conversation's keys and values are:
// [layers * kv heads][capacity * dim] half floats, keys in strips (see key_at); capacity is a multiple of 16.
struct Row {
    half *keys, *values;
    int64_t capacity;
    int64_t position;
};

}

namespace {

// Working memory of a pass, cut from one piece that the caller owns.
struct Arena {
    char *next;
    template <class T>
    T *take(int64_t n) {
        T *taken = reinterpret_cast<T *>(next);
        next += (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
        return taken;
    }
};

// Where threads wait for each other, some hundred times in a pass, for microseconds each. So a waiting thread looks again
// and again, and gives its processor away, without going to sleep, when another program has taken the one it waits for:
// being woken up would cost more than all of the pass.
class Meeting {
  public:
    void wait(int threads) {
        const int round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int looked = 0; round_.load(std::memory_order_acquire) == round; looked++)
            if (looked > PATIENCE) std::this_thread::yield();
    }

  private:
    static constexpr int PATIENCE = 2000;
    std::atomic<int> arrived_{0}, round_{0};
};

// The rounded activations of all rows of a pass.
struct Acts {
    int8_t *quants;
    float *scale, *total;
    Rounded *rows;
    int width;
    void take(Arena &arena, int count, int n) {
        width = n;
        quants = arena.take<int8_t>(static_cast<int64_t>(count) * n);
        scale = arena.take<float>(static_cast<int64_t>(count) * n / GROUP);
        total = arena.take<float>(static_cast<int64_t>(count) * n / GROUP);
        rows = arena.take<Rounded>(count);
    }
    void point(int count) {
        for (int r = 0; r < count; r++) {
            const int64_t g = static_cast<int64_t>(r) * width / GROUP;
            rows[r] = {quants + static_cast<int64_t>(r) * width, scale + g, total + g};
        }
    }
    void round(int r, const float *x) {
        const int64_t g = static_cast<int64_t>(r) * width / GROUP;
        round_row(x, width, quants + static_cast<int64_t>(r) * width, scale + g, total + g);
    }
};

// Which thread of how many this is; a region may get fewer threads than it asked for.
struct Place {
#ifdef _OPENMP
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
#else
    const int thread = 0, threads = 1;
#endif
};

// This thread's share of n things: contiguous, so that memory is read in order.
struct Share {
    int begin, end;
    Share(int n, int thread, int threads) : begin(n * thread / threads), end(n * (thread + 1) / threads) {}
};

constexpr int PANEL = 16;  // rows that meet a block of weights before the next block is read

// out[r][o] (+)= bias[o] + weights[o] . x[r] for this thread's outputs.
void multiply(const Linear &w, const Rounded *x, int rows, float *out, int64_t stride, bool add, int thread, int threads) {
    const int groups = w.inputs / GROUP;
    const Share share(w.outputs / LANES, thread, threads);
    float part[PANEL][LANES];
    for (int b = share.begin; b < share.end; b++)
        for (int r = 0; r < rows; r += PANEL) {
            const int n = std::min(PANEL, rows - r);
            if (w.bits == 4)
                block_rows(static_cast<const Tile4 *>(w.tiles) + static_cast<int64_t>(b) * groups, groups, x + r, n, part);
            else
                block_rows(static_cast<const Tile8 *>(w.tiles) + static_cast<int64_t>(b) * groups, groups, x + r, n, part);
            for (int i = 0; i < n; i++) {
                float *to = out + (r + i) * stride + b * LANES;
                for (int o = 0; o < LANES; o++) {
                    const float y = w.bias ? part[i][o] + w.bias[b * LANES + o] : part[i][o];
                    to[o] = add ? to[o] + y : y;
                }
            }
        }
}

// silu(gate) * up, for this thread's pairs of blocks.
void multiply_gated(const Linear &w, const Rounded *x, int rows, float *out, int64_t stride, int thread, int threads) {
    const int groups = w.inputs / GROUP;
    const Share share(w.outputs / LANES / 2, thread, threads);
    float gate[PANEL][LANES], up[PANEL][LANES];
    for (int b = share.begin; b < share.end; b++)
        for (int r = 0; r < rows; r += PANEL) {
            const int n = std::min(PANEL, rows - r);
            const int64_t at = static_cast<int64_t>(2 * b) * groups;
            if (w.bits == 4) {
                block_rows(static_cast<const Tile4 *>(w.tiles) + at, groups, x + r, n, gate);
                block_rows(static_cast<const Tile4 *>(w.tiles) + at + groups, groups, x + r, n, up);
            } else {
                block_rows(static_cast<const Tile8 *>(w.tiles) + at, groups, x + r, n, gate);
                block_rows(static_cast<const Tile8 *>(w.tiles) + at + groups, groups, x + r, n, up);
            }
            for (int i = 0; i < n; i++) {
                float *to = out + (r + i) * stride + b * LANES;
                for (int o = 0; o < LANES; o++) to[o] = gate[i][o] / (1.0f + exponential(-gate[i][o])) * up[i][o];
            }
        }
}

}  // namespace

extern "C" {

int64_t gl_scratch_bytes(const Shape *s, int32_t rows, int64_t longest, int32_t threads) {
    const int64_t widest = std::max({s->hidden, s->mlp, s->heads * s->dim});
    const int64_t qkv = (s->heads + 2 * s->kv_heads) * s->dim;
    const int64_t per_row = 4 * (qkv + s->heads * s->dim + s->mlp + s->hidden) + 3 * (widest + widest / 4 + 64);
    return rows * per_row + threads * 16 * (longest + 64) + (1 << 16);
}

// Runs all layers. x [rows, hidden]: embedded rows on entry, the last layer's output on return.
// cosine, sine [rows, dim / 2]. features: for each layer null, or [rows, hidden] to receive what enters that layer.
void gl_layers(const Shape *s, const Layer *layers, const Row *rows, int32_t count, const float *cosine, const float *sine,
               float *x, float *const *features, char *scratch, int64_t longest, int32_t threads) {
    const int hidden = s->hidden, dim = s->dim, heads = s->heads, kv = s->kv_heads;
    const int q_width = heads * dim, kv_width = kv * dim, qkv_width = q_width + 2 * kv_width;
    Arena arena{scratch};
    Acts narrow{}, wide{}, attended{};
    narrow.take(arena, count, hidden);
    attended.take(arena, count, q_width);
    wide.take(arena, count, s->mlp);
    narrow.point(count);
    attended.point(count);
    wide.point(count);
    float *normed = arena.take<float>(static_cast<int64_t>(count) * hidden);
    float *qkv = arena.take<float>(static_cast<int64_t>(count) * qkv_width);
    float *seen = arena.take<float>(static_cast<int64_t>(count) * q_width);
    float *gated = arena.take<float>(static_cast<int64_t>(count) * s->mlp);
    const int64_t stride = longest + STRIP;
    float *all_scores = arena.take<float>(threads * 4 * stride);
    Meeting meeting;
#pragma omp parallel num_threads(threads)
    {
        const Place place;
        const int me = place.thread, of = place.threads;
        float *scores = all_scores + me * 4 * stride;
        const Share mine(count, me, of);
        for (int n = 0; n < s->layers; n++) {
            const Layer &layer = layers[n];
            for (int r = mine.begin; r < mine.end; r++) {
                const float *row = x + static_cast<int64_t>(r) * hidden;
                if (features && features[n]) std::memcpy(features[n] + static_cast<int64_t>(r) * hidden, row, 4 * hidden);
                float *to = normed + static_cast<int64_t>(r) * hidden;
                rms_norm(row, layer.attention_norm, hidden, s->epsilon, to);
                narrow.round(r, to);
            }
            meeting.wait(of);
            multiply(layer.qkv, narrow.rows, count, qkv, qkv_width, false, me, of);
            meeting.wait(of);
            for (int r = mine.begin; r < mine.end; r++) {
                float *q = qkv + static_cast<int64_t>(r) * qkv_width, *k = q + q_width, *v = k + kv_width;
                const float *c = cosine + static_cast<int64_t>(r) * dim / 2, *d = sine + static_cast<int64_t>(r) * dim / 2;
                for (int h = 0; h < heads; h++) {
                    if (layer.query_norm) rms_norm(q + h * dim, layer.query_norm, dim, s->epsilon, q + h * dim);
                    rotate(q + h * dim, c, d, dim, s->interleaved);
                }
                for (int h = 0; h < kv; h++) {
                    if (layer.key_norm) rms_norm(k + h * dim, layer.key_norm, dim, s->epsilon, k + h * dim);
                    rotate(k + h * dim, c, d, dim, s->interleaved);
                    const int64_t head = (static_cast<int64_t>(n) * kv + h) * rows[r].capacity * dim;
                    half *key = key_at(rows[r].keys + head, rows[r].position, dim);
                    half *value = rows[r].values + head + rows[r].position * dim;
                    for (int i = 0; i < dim; i++) key[i * STRIP] = to_half(k[h * dim + i]);
                    for (int i = 0; i < dim; i++) value[i] = to_half(v[h * dim + i]);
                }
            }
            meeting.wait(of);
            // Later rows look further, so they are dealt out in turn and not in one piece.
            for (int task = me; task < count * kv; task += of) {
                const int r = task / kv, h = task % kv, shared = heads / kv;
                const int64_t head = (static_cast<int64_t>(n) * kv + h) * rows[r].capacity * dim;
                attend_heads(shared, qkv + static_cast<int64_t>(r) * qkv_width + h * shared * dim, rows[r].keys + head,
                             rows[r].values + head, static_cast<int>(rows[r].position) + 1, dim, s->scale, scores, stride,
                             seen + static_cast<int64_t>(r) * q_width + h * shared * dim);
            }
            meeting.wait(of);
            for (int r = mine.begin; r < mine.end; r++) attended.round(r, seen + static_cast<int64_t>(r) * q_width);
            meeting.wait(of);
            multiply(layer.out, attended.rows, count, x, hidden, true, me, of);
            meeting.wait(of);
            for (int r = mine.begin; r < mine.end; r++) {
                float *to = normed + static_cast<int64_t>(r) * hidden;
                rms_norm(x + static_cast<int64_t>(r) * hidden, layer.mlp_norm, hidden, s->epsilon, to);
                narrow.round(r, to);
            }
            meeting.wait(of);
            multiply_gated(layer.gate_up, narrow.rows, count, gated, s->mlp, me, of);
            meeting.wait(of);
            for (int r = mine.begin; r < mine.end; r++) wide.round(r, gated + static_cast<int64_t>(r) * s->mlp);
            meeting.wait(of);
            multiply(layer.down, wide.rows, count, x, hidden, true, me, of);
            meeting.wait(of);
        }
    }
}

// out [count, w.outputs] = norm(x [count, hidden]) times the head.
void gl_head(const Linear *w, const float *norm, float epsilon, const float *x, int32_t count, float *out, char *scratch,
             int32_t threads) {
    Arena arena{scratch};
    Acts acts{};
    acts.take(arena, count, w->inputs);
    acts.point(count);
    float *normed = arena.take<float>(w->inputs);
    for (int r = 0; r < count; r++) {
        rms_norm(x + static_cast<int64_t>(r) * w->inputs, norm, w->inputs, epsilon, normed);
        acts.round(r, normed);
    }
#pragma omp parallel num_threads(threads)
    {
        const Place place;
        multiply(*w, acts.rows, count, out, w->outputs, false, place.thread, place.threads);
    }
}

// out [count, w.inputs] = the rows `ids` of a table that is packed like a linear layer.
void gl_rows(const Linear *w, const int64_t *ids, int32_t count, float *out) {
    const int groups = w->inputs / GROUP;
    for (int r = 0; r < count; r++) {
        const int64_t block = ids[r] / LANES, o = ids[r] % LANES;
        for (int g = 0; g < groups; g++) {
            float *to = out + static_cast<int64_t>(r) * w->inputs + g * GROUP;
            if (w->bits == 4) {
                const Tile4 &tile = static_cast<const Tile4 *>(w->tiles)[block * groups + g];
                const float scale = to_float(tile.scale[o]), minimum = to_float(tile.minimum[o]);
                for (int i = 0; i < GROUP; i++) {
                    const int both = tile.quants[i / 8][o][i % 4];
                    to[i] = scale * static_cast<float>(i % 8 < 4 ? both & 15 : both >> 4) + minimum;
                }
            } else {
                const Tile8 &tile = static_cast<const Tile8 *>(w->tiles)[block * groups + g];
                const float scale = to_float(tile.scale[o]);
                for (int i = 0; i < GROUP; i++) to[i] = scale * static_cast<float>(tile.quants[i / 4][o][i % 4]);
            }
        }
    }
}

// The integers behind a row: what the twin in Python must find too.
void gl_round(const float *x, int32_t n, int8_t *quants, float *scale, float *total) { round_row(x, n, quants, scale, total); }

// out [count, w.outputs] = x [count, w.inputs] times the weights, for tests and measurements.
void gl_multiply(const Linear *w, const float *x, int32_t count, float *out, char *scratch, int32_t threads) {
    Arena arena{scratch};
    Acts acts{};
    acts.take(arena, count, w->inputs);
    acts.point(count);
    for (int r = 0; r < count; r++) acts.round(r, x + static_cast<int64_t>(r) * w->inputs);
#pragma omp parallel num_threads(threads)
    {
        const Place place;
        multiply(*w, acts.rows, count, out, w->outputs, false, place.thread, place.threads);
    }
}

// Which path this build took, for people.
const char *gl_path() {
#ifdef HAVE_VNNI
    return "AVX-512 VNNI";
#elif defined(HAVE_AVX2)
    return "AVX2";
#else
    return "portable C++";
#endif
}

}
