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
#include <functional>
#include <thread>
#include <vector>

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
constexpr int PANEL = 4;  // rows that meet a tile together: as many as keep their sums in registers

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

// Activations of up to four rows, rounded to 8 bits and laid side by side, so that one pointer reaches all of them:
// value = scale * quant; total = scale * sum of the quants, for the minima.
struct Panel {
    const int8_t *quants;  // [group][quad][row][4]
    const float *scale;    // [group][row]
    const float *total;    // [group][row]
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
inline __m512i quad(const int8_t *x, int j, int row) {
    int32_t four;
    std::memcpy(&four, x + (j * PANEL + row) * 4, 4);
    return _mm512_set1_epi32(four);
}

template <int ROWS>
inline void dot(const Tile4 &tile, const Panel &x, int g, Sums *sums) {
    const __m512i low = _mm512_set1_epi8(15);
    __m512i w[QUADS];
    for (int p = 0; p < 4; p++) {
        const __m512i both = _mm512_loadu_si512(tile.quants[p]);
        w[2 * p] = _mm512_and_si512(both, low);
        w[2 * p + 1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
    const __m512 scale = halves(tile.scale), minimum = halves(tile.minimum);
    for (int r = 0; r < ROWS; r++) {
        const int8_t *q = x.quants + g * GROUP * PANEL;
        __m512i even = _mm512_setzero_si512(), odd = even;
        for (int j = 0; j < QUADS; j += 2) {
            even = _mm512_dpbusd_epi32(even, w[j], quad(q, j, r));
            odd = _mm512_dpbusd_epi32(odd, w[j + 1], quad(q, j + 1, r));
        }
        const __m512 whole = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
        const __m512 step = _mm512_mul_ps(scale, _mm512_set1_ps(x.scale[g * PANEL + r]));
        sums[r] = _mm512_fmadd_ps(whole, step, sums[r]);
        sums[r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x.total[g * PANEL + r]), sums[r]);
    }
}

template <int ROWS>
inline void dot(const Tile8 &tile, const Panel &x, int g, Sums *sums) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(-128));
    const __m512 scale = halves(tile.scale);
    for (int r = 0; r < ROWS; r++) {
        const int8_t *q = x.quants + g * GROUP * PANEL;
        __m512i sum = _mm512_setzero_si512(), offset = sum;
        for (int j = 0; j < QUADS; j++) {  // (w + 128) * q - 128 * q, since the instruction wants one side unsigned
            const __m512i four = quad(q, j, r);
            sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_loadu_si512(tile.quants[j]), flip), four);
            offset = _mm512_dpbusd_epi32(offset, flip, four);
        }
        const __m512 whole = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, offset));
        sums[r] = _mm512_fmadd_ps(whole, _mm512_mul_ps(scale, _mm512_set1_ps(x.scale[g * PANEL + r])), sums[r]);
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
inline __m256i quad(const int8_t *x, int j, int row) {
    int32_t four;
    std::memcpy(&four, x + (j * PANEL + row) * 4, 4);
    return _mm256_set1_epi32(four);
}

// 8 * 2 * 15 * 127 fits 16 bits, so a whole group is summed in 16 bits and widened once.
template <int ROWS>
inline void dot(const Tile4 &tile, const Panel &x, int g, Sums *sums) {
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    const int8_t *quants = x.quants + g * GROUP * PANEL;
    __m256i sum[ROWS][2];
#pragma GCC unroll 8
    for (int j = 0; j < QUADS; j++) {
        __m256i w[2];
        for (int side = 0; side < 2; side++) {  // 8 outputs each
            const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(tile.quants[j / 2][8 * side]));
            w[side] = _mm256_and_si256(j % 2 ? _mm256_srli_epi16(both, 4) : both, low);
        }
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            const __m256i q = quad(quants, j, r);
            for (int side = 0; side < 2; side++) {
                const __m256i pairs = _mm256_maddubs_epi16(w[side], q);
                sum[r][side] = j ? _mm256_add_epi16(sum[r][side], pairs) : pairs;
                asm("" : "+x"(sum[r][side]));
            }
        }
    }
    for (int side = 0; side < 2; side++) {
        const __m256 scale = halves(tile.scale + 8 * side), minimum = halves(tile.minimum + 8 * side);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            const __m256 whole = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[r][side], ones));
            const __m256 step = _mm256_mul_ps(scale, _mm256_set1_ps(x.scale[g * PANEL + r]));
            __m256 &total = sums[r].part[side];
            total = _mm256_fmadd_ps(whole, step, total);
            total = _mm256_fmadd_ps(minimum, _mm256_set1_ps(x.total[g * PANEL + r]), total);
        }
    }
}

template <int ROWS>
inline void dot(const Tile8 &tile, const Panel &x, int g, Sums *sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int8_t *quants = x.quants + g * GROUP * PANEL;
    __m256i sum[ROWS][2];
#pragma GCC unroll 8
    for (int j = 0; j < QUADS; j++) {
        __m256i w[2], size[2];
        for (int side = 0; side < 2; side++) {
            w[side] = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(tile.quants[j][8 * side]));
            size[side] = _mm256_abs_epi8(w[side]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {  // |w| * (q with w's sign): 2 * 127 * 127 fits 16 bits
            const __m256i q = quad(quants, j, r);
            for (int side = 0; side < 2; side++) {
                const __m256i pairs = _mm256_maddubs_epi16(size[side], _mm256_sign_epi8(q, w[side]));
                const __m256i four = _mm256_madd_epi16(pairs, ones);
                sum[r][side] = j ? _mm256_add_epi32(sum[r][side], four) : four;
                asm("" : "+x"(sum[r][side]));
            }
        }
    }
    for (int side = 0; side < 2; side++) {
        const __m256 scale = halves(tile.scale + 8 * side);
        for (int r = 0; r < ROWS; r++) {
            const __m256 step = _mm256_mul_ps(scale, _mm256_set1_ps(x.scale[g * PANEL + r]));
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
inline void dot(const Tile4 &tile, const Panel &x, int g, Sums *sums) {
    for (int r = 0; r < ROWS; r++) {
        const int8_t *q = x.quants + g * GROUP * PANEL;
        for (int o = 0; o < LANES; o++) {
            int sum = 0;
            for (int p = 0; p < 4; p++)
                for (int b = 0; b < 4; b++) {
                    const int both = tile.quants[p][o][b];
                    sum += (both & 15) * q[(2 * p * PANEL + r) * 4 + b] + (both >> 4) * q[((2 * p + 1) * PANEL + r) * 4 + b];
                }
            const float step = to_float(tile.scale[o]) * x.scale[g * PANEL + r];
            sums[r].lane[o] = std::fma(static_cast<float>(sum), step, sums[r].lane[o]);
            sums[r].lane[o] = std::fma(to_float(tile.minimum[o]), x.total[g * PANEL + r], sums[r].lane[o]);
        }
    }
}

template <int ROWS>
inline void dot(const Tile8 &tile, const Panel &x, int g, Sums *sums) {
    for (int r = 0; r < ROWS; r++) {
        const int8_t *q = x.quants + g * GROUP * PANEL;
        for (int o = 0; o < LANES; o++) {
            int sum = 0;
            for (int j = 0; j < QUADS; j++)
                for (int b = 0; b < 4; b++) sum += tile.quants[j][o][b] * q[(j * PANEL + r) * 4 + b];
            const float step = to_float(tile.scale[o]) * x.scale[g * PANEL + r];
            sums[r].lane[o] = std::fma(static_cast<float>(sum), step, sums[r].lane[o]);
        }
    }
}

#endif

constexpr int64_t AHEAD = 4096;  // bytes: far enough for the next tiles to arrive while these are multiplied

template <class Tile, int ROWS>
inline void block(const Tile *tiles, int groups, const Panel &x, float (*out)[LANES]) {
    Sums sums[ROWS];
    for (int r = 0; r < ROWS; r++) sums[r] = zero();
    for (int g = 0; g < groups; g++) {
        const char *ahead = reinterpret_cast<const char *>(tiles + g) + AHEAD;
        for (size_t line = 0; line < sizeof(Tile); line += 64) __builtin_prefetch(ahead + line);
        dot<ROWS>(tiles[g], x, g, sums);
    }
    for (int r = 0; r < ROWS; r++) store(out[r], sums[r]);
}

// One block of 16 outputs for any number of rows; `out` has a line for each row.
template <class Tile>
inline void block_rows(const Tile *tiles, int groups, const Panel *x, int rows, float (*out)[LANES]) {
    for (; rows >= PANEL; rows -= PANEL, x++, out += PANEL) block<Tile, PANEL>(tiles, groups, *x, out);
    switch (rows) {
        case 3: block<Tile, 3>(tiles, groups, *x, out); break;
        case 2: block<Tile, 2>(tiles, groups, *x, out); break;
        case 1: block<Tile, 1>(tiles, groups, *x, out); break;
        default: break;
    }
}


// ---- small vector functions; vectors of 8 floats, which every compiler here maps to what the processor has -----------

using Floats = float __attribute__((vector_size(32)));
using Ints = int32_t __attribute__((vector_size(32)));
constexpr int WIDTH = 8;

inline Floats load(const float *x) {
    Floats v;
    std::memcpy(&v, x, sizeof v);
    return v;
}
inline void keep(float *x, Floats v) { std::memcpy(x, &v, sizeof v); }
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
inline Floats fused(Floats a, Floats b, Floats c) {  // a * b + c, rounded once
#ifdef HAVE_AVX2
    return _mm256_fmadd_ps(a, b, c);
#else
    for (int l = 0; l < WIDTH; l++) c[l] = std::fma(a[l], b[l], c[l]);
    return c;
#endif
}
inline Floats all(float x) { return Floats{} + x; }
inline float sum_of(Floats v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }

inline float sum_of_squares(const float *x, int n) {
    Floats even{}, odd{};
    for (int i = 0; i < n; i += 2 * WIDTH) {
        even += load(x + i) * load(x + i);
        odd += load(x + i + WIDTH) * load(x + i + WIDTH);
    }
    return sum_of(even + odd);
}

// One over the root of the mean square.
inline float inverse_norm(const float *x, int n, float epsilon) {
    return 1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + epsilon);
}

inline void scaled(const float *x, float by, const float *weight, int n, float *out) {
    for (int i = 0; i < n; i += WIDTH) keep(out + i, load(x + i) * by * load(weight + i));
}

inline void rms_norm(const float *x, const float *weight, int n, float epsilon, float *out) {
    scaled(x, inverse_norm(x, n, epsilon), weight, n, out);
}

// e^x, x held to [-87, 87], to about 2 units in the last place: 2^n * polynomial on [-ln2/2, ln2/2] (Cephes, expf).
inline Floats exponential(Floats x) {
    const float shift = 12582912.0f;  // adding 1.5 * 2^23 rounds to a whole number
    x = smaller(larger(x, all(-87.0f)), all(87.0f));
    const Floats n = fused(x, all(1.44269504f), all(shift)) - shift;
    const Floats r = fused(n, all(2.12194440e-4f), fused(n, all(-0.693359375f), x));
    Floats p = all(1.9875691500e-4f);
    for (const float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        p = fused(p, r, all(next));
    p = fused(p, r * r, r) + 1.0f;
    const Ints bits = (__builtin_convertvector(n, Ints) + 127) << 23;
    Floats power;
    std::memcpy(&power, &bits, sizeof power);
    return p * power;
}

// 2^x for x <= 0, held to -125, to about 2 units in the last place: cheaper than e^x where a few more roundings of x do not
// matter. 2^n * polynomial on [-1/2, 1/2], whose 1 is exact (the largest relative error made smallest).
inline Floats power_of_two(Floats x) {
    const float shift = 12582912.0f;  // 1.5 * 2^23: the sum's lowest bits are the whole number
    x = larger(x, all(-125.0f));
    const Floats shifted = x + shift;
    const Floats r = x - (shifted - shift);
    Floats p = all(1.326472720e-3f);
    for (const float next : {9.671512640e-3f, 5.550733743e-2f, 2.402224209e-1f, 6.931469776e-1f, 1.0f}) p = fused(p, r, all(next));
    Ints n, bits;
    std::memcpy(&n, &shifted, sizeof n);
    std::memcpy(&bits, &p, sizeof bits);
    bits += n << 23;
    std::memcpy(&p, &bits, sizeof p);
    return p;
}

// What a row's softmax takes: the largest x, and the sum of e^(x - largest). Each x is read from memory once.
struct Softmax {
    static constexpr int STEP = 4 * WIDTH, BLOCK = 1024;
    float largest = -INFINITY;
    Floats sums[4]{};
    Ints numbers = ~Ints{};  // all bits, as long as everything is below +inf; comparing for the largest would hide what is not

    // A block of n values, a multiple of STEP.
    void add(const float *x, int n) {
        Floats most[4] = {all(largest), all(largest), all(largest), all(largest)};
        for (int i = 0; i < n; i += STEP)
            for (int part = 0; part < 4; part++) {
                const Floats v = load(x + i + part * WIDTH);
                numbers &= v < all(INFINITY);
                most[part] = larger(v, most[part]);
            }
        const Floats both = larger(larger(most[0], most[1]), larger(most[2], most[3]));
        float now = both[0];
        for (int l = 1; l < WIDTH; l++) now = std::max(now, both[l]);
        if (now == -INFINITY) return;
        if (now > largest)
            for (Floats &sum : sums) sum *= std::exp(largest - now);
        largest = now;
        for (int i = 0; i < n; i += STEP)
            for (int part = 0; part < 4; part++)
                sums[part] += power_of_two((load(x + i + part * WIDTH) - largest) * 1.44269504f);
    }

    // The probability of x; no number where a value was none or +inf, or none was above -inf.
    double share(float x) const {
        for (int l = 0; l < WIDTH; l++)
            if (!numbers[l]) return NAN;
        const double sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
        return largest == -INFINITY ? NAN : std::min(1.0, std::exp(static_cast<double>(x) - largest) / sum);
    }
};

Softmax softmax(const float *x, int n) {
    constexpr int STEP = Softmax::STEP, BLOCK = Softmax::BLOCK;
    const int whole = n / STEP * STEP;
    float rest[STEP];  // filled up with what adds nothing
    std::fill(rest, rest + STEP, -INFINITY);
    std::copy(x + whole, x + n, rest);
    Softmax all_of_it;
    for (int i = 0; i < whole; i += BLOCK) all_of_it.add(x + i, std::min(BLOCK, whole - i));
    all_of_it.add(rest, STEP);
    return all_of_it;
}

// ---- the distribution of one row, see sampling.py, which says what each filter keeps ---------------------------------

constexpr int RUN = 64;  // so many numbers are summed in one go before their sum goes to the whole, which is more exact

inline bool any(Ints mask) {
#ifdef HAVE_AVX2
    __m256 bits;
    std::memcpy(&bits, &mask, sizeof bits);
    return _mm256_movemask_ps(bits) != 0;
#else
    for (int l = 0; l < WIDTH; l++)
        if (mask[l]) return true;
    return false;
#endif
}

// Calls each(i) for every x[i] >= floor, in order; most rows have few.
template <class Each>
inline void at_least(const float *x, int n, float floor, Each each) {
    int i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        if (any(load(x + i) >= all(floor)))
            for (int l = i; l < i + WIDTH; l++)
                if (x[l] >= floor) each(l);
    for (; i < n; i++)
        if (x[i] >= floor) each(i);
}

// The largest of x; no number, or infinity, where one of them is.
inline float largest_of(const float *x, int n) {
    Floats most = all(-INFINITY);
    Ints numbers = ~Ints{};
    float best = -INFINITY;
    int i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        const Floats v = load(x + i);
        numbers &= v < all(INFINITY);
        most = larger(v, most);
    }
    for (int l = 0; l < WIDTH; l++) {
        if (!numbers[l]) return NAN;
        best = std::max(best, most[l]);
    }
    for (; i < n; i++) {
        if (!(x[i] < INFINITY)) return NAN;
        best = std::max(best, x[i]);
    }
    return best;
}

// x -> e^x, 0 where that would be smaller than e^-87; returns the sum.
inline double exponentials(float *x, int n) {
    double total = 0.0;
    int i = 0;
    while (i + WIDTH <= n) {
        Floats sum{};
        for (const int end = std::min(i + RUN, n); i + WIDTH <= end; i += WIDTH) {
            const Floats v = load(x + i), e = exponential(v), kept = v < all(-87.0f) ? Floats{} : e;
            keep(x + i, kept);
            sum += kept;
        }
        total += sum_of(sum);
    }
    for (; i < n; i++) total += x[i] = x[i] < -87.0f ? 0.0f : std::exp(x[i]);
    return total;
}

inline void divide(float *x, int n, float by) {
    for (int i = 0; i < n; i++) x[i] /= by;
}

constexpr float NEAR = 8.0f;  // as in sampling.py: what is so close to the best is looked at first

// For logs <= 0: those below the top_k-th largest become -inf.
inline void keep_top_k(float *logs, int n, int top_k) {
    std::vector<float> near;
    for (float floor = -NEAR; static_cast<int>(near.size()) < top_k; floor = floor > -1e6f ? floor * 4 : -INFINITY) {
        near.clear();
        at_least(logs, n, floor, [&](int i) { near.push_back(logs[i]); });
    }
    std::nth_element(near.begin(), near.begin() + (top_k - 1), near.end(), std::greater<float>());
    const float least = near[top_k - 1];
    for (int i = 0; i < n; i++) logs[i] = logs[i] < least ? -INFINITY : logs[i];
}

// The sum of up to RUN numbers.
inline double run_sum(const float *x, int n) {
    using Four = float __attribute__((vector_size(16)));
    using Doubles = double __attribute__((vector_size(32)));
    Doubles even{}, odd{};
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        Four a, b;
        std::memcpy(&a, x + i, sizeof a);
        std::memcpy(&b, x + i + 4, sizeof b);
        even += __builtin_convertvector(a, Doubles);
        odd += __builtin_convertvector(b, Doubles);
    }
    even += odd;
    double sum = (even[0] + even[1]) + (even[2] + even[3]);
    for (; i < n; i++) sum += x[i];
    return sum;
}

inline double total_of(const float *x, int n) {
    double total = 0.0;
    for (int i = 0; i < n; i += RUN) total += run_sum(x + i, std::min(RUN, n - i));
    return total;
}

// The sum of those of x that are at least `floor`.
inline double sum_from(const float *x, int n, float floor) {
    double total = 0.0;
    int i = 0;
    while (i + WIDTH <= n) {
        Floats sum{};
        for (const int end = std::min(i + RUN, n); i + WIDTH <= end; i += WIDTH) {
            const Floats v = load(x + i);
            sum += v >= all(floor) ? v : Floats{};
        }
        total += sum_of(sum);
    }
    for (; i < n; i++) total += x[i] >= floor ? x[i] : 0.0f;
    return total;
}

// The largest number such that those of x >= 0 that are at least so large come to `mass`; 0 where all do not. Numbers from 0
// on are in the order of their bits.
inline float least_of_mass(const float *x, int n, double mass) {
    float most = largest_of(x, n), found;
    if (sum_from(x, n, most) >= mass) return most;
    int32_t low = 0, high;
    std::memcpy(&high, &most, sizeof high);
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        std::memcpy(&found, &middle, sizeof found);
        (sum_from(x, n, found) >= mass ? low : high) = middle;
    }
    std::memcpy(&found, &low, sizeof found);
    return found;
}

// Probabilities outside the smallest set of likeliest ones that comes to top_p become 0; ties with the last are kept.
inline void keep_top_p(float *probs, int n, double top_p) {
    std::vector<float> near;
    at_least(probs, n, largest_of(probs, n) * std::exp(-NEAR), [&](int i) { near.push_back(probs[i]); });
    const int few = static_cast<int>(near.size());
    const bool enough = sum_from(near.data(), few, 0.0f) >= top_p;
    const float least = least_of_mass(enough ? near.data() : probs, enough ? few : n, top_p);
    for (int i = 0; i < n; i++) probs[i] = probs[i] >= least ? probs[i] : 0.0f;
}

constexpr int STRIP = 16;  // keys of so many positions are kept side by side, so that scores need no sums across lanes

// A strip of 16 positions of one head's keys: half floats [dim][16]. Values are plain: [position][dim].
inline half *key_at(half *keys, int64_t position, int dim) {
    return keys + position / STRIP * STRIP * dim + position % STRIP;
}

// One query head of one row, which sees positions 0..n-1.
struct Query {
    const float *q;  // [dim]
    float *scores;   // room for n rounded up to whole strips
    float *out;      // [dim]
    int n;
};

constexpr int QUERIES = 6;  // that read the same keys and values together: as many as keep their sums in registers

constexpr int STRIPS_AHEAD = 2;

// scores[0..15] = scale * q . key, for the positions of one strip that begins at `first`. On the way it fetches the keys of a
// later strip and the values of this one: they come from memory, which would else be waited for.
template <int COUNT>
inline void score_strip(const Query *query, const half *strip, [[maybe_unused]] const half *values, int first, int dim, float scale) {
#ifdef HAVE_AVX2
    __m256 sum[COUNT][2];
    for (int c = 0; c < COUNT; c++) sum[c][0] = sum[c][1] = _mm256_setzero_ps();
    for (int d = 0; d < dim; d++) {
        if (d % 2 == 0) {  // a line of the cache is two numbers of a strip
            __builtin_prefetch(strip + (d + STRIPS_AHEAD * dim) * STRIP);
            __builtin_prefetch(values + d * STRIP);
        }
        const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(strip + d * STRIP)));
        const __m256 b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(strip + d * STRIP + 8)));
        for (int c = 0; c < COUNT; c++) {
            const __m256 f = _mm256_broadcast_ss(query[c].q + d);
            sum[c][0] = _mm256_fmadd_ps(f, a, sum[c][0]);
            sum[c][1] = _mm256_fmadd_ps(f, b, sum[c][1]);
        }
    }
    const __m256 factor = _mm256_set1_ps(scale);
    for (int c = 0; c < COUNT; c++) {
        _mm256_storeu_ps(query[c].scores + first, _mm256_mul_ps(factor, sum[c][0]));
        _mm256_storeu_ps(query[c].scores + first + 8, _mm256_mul_ps(factor, sum[c][1]));
    }
#else
    for (int c = 0; c < COUNT; c++)
        for (int p = 0; p < STRIP; p++) {
            float sum = 0.0f;
            for (int d = 0; d < dim; d++) sum = std::fma(query[c].q[d], to_float(strip[d * STRIP + p]), sum);
            query[c].scores[first + p] = scale * sum;
        }
#endif
}

// out += weight * value over positions begin..end-1 in order, `scores` being weights by now; 16 of a value's numbers at a time.
template <int COUNT>
inline void mix_values(const Query *query, const half *values, int begin, int end, int dim) {
    for (int d = 0; d < dim; d += 16) {
#ifdef HAVE_AVX2
        __m256 sum[COUNT][2];
        for (int c = 0; c < COUNT; c++) {
            sum[c][0] = _mm256_loadu_ps(query[c].out + d);
            sum[c][1] = _mm256_loadu_ps(query[c].out + d + 8);
        }
        for (int i = begin; i < end; i++) {
            const half *v = values + static_cast<int64_t>(i) * dim + d;
            const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(v)));
            const __m256 b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(v + 8)));
            for (int c = 0; c < COUNT; c++) {
                const __m256 f = _mm256_broadcast_ss(query[c].scores + i);
                sum[c][0] = _mm256_fmadd_ps(f, a, sum[c][0]);
                sum[c][1] = _mm256_fmadd_ps(f, b, sum[c][1]);
            }
        }
        for (int c = 0; c < COUNT; c++) {
            _mm256_storeu_ps(query[c].out + d, sum[c][0]);
            _mm256_storeu_ps(query[c].out + d + 8, sum[c][1]);
        }
#else
        for (int c = 0; c < COUNT; c++)
            for (int l = d; l < d + 16; l++) {
                float sum = query[c].out[l];
                for (int i = begin; i < end; i++)
                    sum = std::fma(query[c].scores[i], to_float(values[static_cast<int64_t>(i) * dim + l]), sum);
                query[c].out[l] = sum;
            }
#endif
    }
}

// scores[0..n) -> weights e^(score - largest), and one over their sum. The last strip is filled up with e^-87, which
// is too small to change a sum.
inline float soften(float *scores, int n) {
    const int padded = (n + STRIP - 1) / STRIP * STRIP;
    for (int i = n; i < padded; i++) scores[i] = -INFINITY;
    Floats most = load(scores);
    for (int i = WIDTH; i < padded; i += WIDTH) most = larger(most, load(scores + i));
    float largest = most[0];
    for (int l = 1; l < WIDTH; l++) largest = std::max(largest, most[l]);
    Floats even{}, odd{};
    for (int i = 0; i < padded; i += 2 * WIDTH) {
        const Floats a = exponential(load(scores + i) - largest), b = exponential(load(scores + i + WIDTH) - largest);
        keep(scores + i, a);
        keep(scores + i + WIDTH, b);
        even += a;
        odd += b;
    }
    return 1.0f / sum_of(even + odd);
}

// Queries that share a key head. Each sums over its positions in order, whatever it is computed with.
template <int COUNT>
inline void attend(const Query *query, const half *keys, const half *values, int dim, float scale) {
    int common = query[0].n, longest = common;
    for (int c = 1; c < COUNT; c++) {
        common = std::min(common, query[c].n);
        longest = std::max(longest, query[c].n);
    }
    for (int64_t i = 0; i < longest; i += STRIP)
        score_strip<COUNT>(query, keys + i * dim, values + i * dim, static_cast<int>(i), dim, scale);
    float inverse[COUNT];
    for (int c = 0; c < COUNT; c++) {
        inverse[c] = soften(query[c].scores, query[c].n);
        std::memset(query[c].out, 0, sizeof(float) * dim);
    }
    mix_values<COUNT>(query, values, 0, common, dim);
    for (int c = 0; c < COUNT; c++) {
        if (query[c].n > common) mix_values<1>(query + c, values, common, query[c].n, dim);
        for (int d = 0; d < dim; d++) query[c].out[d] *= inverse[c];
    }
}

inline void attend_all(const Query *query, int count, const half *keys, const half *values, int dim, float scale) {
    switch (count) {
        case 1: return attend<1>(query, keys, values, dim, scale);
        case 2: return attend<2>(query, keys, values, dim, scale);
        case 3: return attend<3>(query, keys, values, dim, scale);
        case 4: return attend<4>(query, keys, values, dim, scale);
        case 5: return attend<5>(query, keys, values, dim, scale);
        case 6: return attend<6>(query, keys, values, dim, scale);
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
    const float *state_norm;             // [hidden], or null: see gl_layers
    Linear qkv, out, gate_up, down;      // gate_up: blocks of 16 gate and 16 up outputs in turn
};

struct Shape {
    int32_t layers, hidden, heads, kv_heads, dim, mlp, interleaved;
    float epsilon, scale;
    int32_t normed_residual;  // whether a draft head's first layer adds to the normed state
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
    Share(int64_t n, int thread, int threads)
        : begin(static_cast<int>(n * thread / threads)), end(static_cast<int>(n * (thread + 1) / threads)) {}
};

// The rounded activations of all rows of a pass. The rows of a panel lie side by side in one line of the cache, so threads
// share them out by groups of inputs: two that wrote rows of the same panel would take the line from each other all the time.
struct Acts {
    int8_t *quants;
    float *scale, *total;
    Panel *panels;
    int width, rows;
    void take(Arena &arena, int count, int n) {
        width = n, rows = count;
        const int64_t padded = (count + PANEL - 1) / PANEL * PANEL;
        quants = arena.take<int8_t>(padded * n);
        scale = arena.take<float>(padded * n / GROUP);
        total = arena.take<float>(padded * n / GROUP);
        panels = arena.take<Panel>(padded / PANEL);
        for (int64_t p = 0; p < padded / PANEL; p++) {
            const int64_t at = p * PANEL * n;
            panels[p] = {quants + at, scale + at / GROUP, total + at / GROUP};
        }
    }
    // Calls each(row, g) for this thread's share of all groups of all rows, panel by panel.
    template <class Each>
    void share_out(const Place &place, Each each) const {
        const int groups = width / GROUP;
        const Share mine(static_cast<int64_t>((rows + PANEL - 1) / PANEL) * groups, place.thread, place.threads);
        for (int unit = mine.begin; unit < mine.end; unit++) {
            const int first = unit / groups * PANEL, last = std::min(first + PANEL, rows);
            for (int r = first; r < last; r++) each(r, unit % groups);
        }
    }
    // Group g of a row, from its 32 numbers.
    void round(int row, int g, const float *x) {
        const int64_t panel = row / PANEL * PANEL * static_cast<int64_t>(width), lane = row % PANEL;
        const int64_t at = panel / GROUP + g * PANEL + lane;
        int8_t group[GROUP];
        round_group(x, group, scale + at, total + at);
        int8_t *to = quants + panel + (static_cast<int64_t>(g) * QUADS * PANEL + lane) * 4;
        for (int j = 0; j < QUADS; j++) std::memcpy(to + j * PANEL * 4, group + 4 * j, 4);
    }
    // This thread's share of rows [rows, stride].
    void round_all(const float *x, int64_t stride, const Place &place) {
        share_out(place, [&](int r, int g) { round(r, g, x + r * stride + g * GROUP); });
    }
    // The same of normed rows [rows, width]. Each thread finds the norm of whole rows for itself, which is little beside waiting.
    void round_normed(const float *x, const float *weight, float epsilon, const Place &place) {
        int row = -1;
        float inverse[PANEL];
        share_out(place, [&](int r, int g) {
            if (r % PANEL == 0 && r != row)
                for (int i = row = r; i < std::min(r + PANEL, rows); i++)
                    inverse[i % PANEL] = inverse_norm(x + static_cast<int64_t>(i) * width, width, epsilon);
            float normed[GROUP];
            scaled(x + static_cast<int64_t>(r) * width + g * GROUP, inverse[r % PANEL], weight + g * GROUP, GROUP, normed);
            round(r, g, normed);
        });
    }
};

// Norms, where there is such a norm, and rotates query head h of a row of queries, keys and values, or the key head behind them.
inline void turn(float *row, int h, const float *cosine, const float *sine, const Shape &s, const Layer &layer) {
    const float *norm = h < s.heads ? layer.query_norm : layer.key_norm;
    float *head = row + h * s.dim;
    if (norm) rms_norm(head, norm, s.dim, s.epsilon, head);
    rotate(head, cosine, sine, s.dim, s.interleaved);
}

// Key and value of key head h of that row to where its conversation keeps those of layer n.
inline void write_key(const float *row, int h, int n, const Row &to, const Shape &s) {
    const int dim = s.dim;
    const float *k = row + (s.heads + h) * dim, *v = k + s.kv_heads * dim;
    const int64_t head = (static_cast<int64_t>(n) * s.kv_heads + h) * to.capacity * dim;
    half *key = key_at(to.keys + head, to.position, dim), *value = to.values + head + to.position * dim;
    for (int i = 0; i < dim; i++) key[i * STRIP] = to_half(k[i]);
    for (int i = 0; i < dim; i++) value[i] = to_half(v[i]);
}

constexpr int STACK = 16;  // rows that meet a block of weights before the next block is read

// out[r][o] (+)= bias[o] + weights[o] . x[r] for this thread's outputs.
void multiply(const Linear &w, const Panel *x, int rows, float *out, int64_t stride, bool add, int thread, int threads) {
    const int groups = w.inputs / GROUP;
    const Share share(w.outputs / LANES, thread, threads);
    float part[STACK][LANES];
    for (int b = share.begin; b < share.end; b++)
        for (int r = 0; r < rows; r += STACK) {
            const int n = std::min(STACK, rows - r);
            if (w.bits == 4)
                block_rows(static_cast<const Tile4 *>(w.tiles) + static_cast<int64_t>(b) * groups, groups, x + r / PANEL, n, part);
            else
                block_rows(static_cast<const Tile8 *>(w.tiles) + static_cast<int64_t>(b) * groups, groups, x + r / PANEL, n, part);
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
void multiply_gated(const Linear &w, const Panel *x, int rows, float *out, int64_t stride, int thread, int threads) {
    const int groups = w.inputs / GROUP;
    const Share share(w.outputs / LANES / 2, thread, threads);
    float gate[STACK][LANES], up[STACK][LANES];
    for (int b = share.begin; b < share.end; b++)
        for (int r = 0; r < rows; r += STACK) {
            const int n = std::min(STACK, rows - r);
            const int64_t at = static_cast<int64_t>(2 * b) * groups;
            if (w.bits == 4) {
                block_rows(static_cast<const Tile4 *>(w.tiles) + at, groups, x + r / PANEL, n, gate);
                block_rows(static_cast<const Tile4 *>(w.tiles) + at + groups, groups, x + r / PANEL, n, up);
            } else {
                block_rows(static_cast<const Tile8 *>(w.tiles) + at, groups, x + r / PANEL, n, gate);
                block_rows(static_cast<const Tile8 *>(w.tiles) + at + groups, groups, x + r / PANEL, n, up);
            }
            for (int i = 0; i < n; i++) {
                float *to = out + (r + i) * stride + b * LANES;
                for (int o = 0; o < LANES; o += WIDTH) {
                    const Floats x = load(gate[i] + o);
                    keep(to + o, x / (1.0f + exponential(-x)) * load(up[i] + o));
                }
            }
        }
}

}  // namespace

extern "C" {

// What the takings of gl_layers come to, and those of gl_head, which are fewer.
int64_t gl_scratch_bytes(const Shape *s, int32_t rows, int64_t longest, int32_t threads) {
    const int64_t padded = (rows + PANEL - 1) / PANEL * PANEL, q_width = static_cast<int64_t>(s->heads) * s->dim;
    const int64_t rounded = 3 * s->hidden + q_width + s->mlp;
    const int64_t floats = 2 * s->hidden + (q_width + 2LL * s->kv_heads * s->dim) + q_width + s->mlp;
    const int64_t acts = padded * (rounded + 2 * rounded / GROUP * 4) + 4 * padded * static_cast<int64_t>(sizeof(Panel));
    const int64_t scores = threads * QUERIES * (longest + STRIP) * 4;
    constexpr int64_t ALIGNMENT = 64 * 32;  // one rounding up for each piece, and some to spare
    return acts + rows * 4 * floats + scores + ALIGNMENT;
}

// Runs all layers. x [rows, hidden]: embedded rows on entry, the last layer's output on return.
// cosine, sine [rows, dim / 2]. features: for each layer null, or [rows, hidden] to receive what enters that layer.
//
// A layer with a state_norm is the first of a draft head (EAGLE-3): its projections read two vectors, the normed row of
// `embedded` [rows, hidden] and the normed state in x. keys_only: end when the last layer's keys and values are written.
void gl_layers(const Shape *s, const Layer *layers, const Row *rows, int32_t count, const float *cosine, const float *sine,
               float *x, const float *embedded, int32_t keys_only, float *const *features, char *scratch, int64_t longest,
               int32_t threads) {
    const int hidden = s->hidden, dim = s->dim, heads = s->heads, kv = s->kv_heads;
    const int q_width = heads * dim, kv_width = kv * dim, qkv_width = q_width + 2 * kv_width;
    Arena arena{scratch};
    Acts narrow{}, wide{}, attended{}, both{};
    narrow.take(arena, count, hidden);
    if (embedded) both.take(arena, count, 2 * hidden);
    attended.take(arena, count, q_width);
    wide.take(arena, count, s->mlp);
    float *normed = arena.take<float>(static_cast<int64_t>(count) * 2 * hidden);
    float *qkv = arena.take<float>(static_cast<int64_t>(count) * qkv_width);
    float *seen = arena.take<float>(static_cast<int64_t>(count) * q_width);
    float *gated = arena.take<float>(static_cast<int64_t>(count) * s->mlp);
    const int64_t stride = longest + STRIP;
    float *all_scores = arena.take<float>(threads * QUERIES * stride);
    const int shared = heads / kv;
    Meeting meeting;
#pragma omp parallel num_threads(threads)
    {
        const Place place;
        const int me = place.thread, of = place.threads;
        float *scores = all_scores + me * QUERIES * stride;
        const Share mine(count, me, of);
        for (int n = 0; n < s->layers; n++) {
            const Layer &layer = layers[n];
            if (features && features[n])
                for (int r = mine.begin; r < mine.end; r++)
                    std::memcpy(features[n] + static_cast<int64_t>(r) * hidden, x + static_cast<int64_t>(r) * hidden, 4 * hidden);
            if (layer.state_norm) {
                for (int r = mine.begin; r < mine.end; r++) {
                    float *row = x + static_cast<int64_t>(r) * hidden, *to = normed + static_cast<int64_t>(r) * 2 * hidden;
                    rms_norm(embedded + static_cast<int64_t>(r) * hidden, layer.attention_norm, hidden, s->epsilon, to);
                    rms_norm(row, layer.state_norm, hidden, s->epsilon, to + hidden);
                    if (s->normed_residual) std::memcpy(row, to + hidden, 4 * hidden);
                }
                meeting.wait(of);
                both.round_all(normed, 2 * hidden, place);
            } else {
                narrow.round_normed(x, layer.attention_norm, s->epsilon, place);
            }
            meeting.wait(of);
            multiply(layer.qkv, layer.state_norm ? both.panels : narrow.panels, count, qkv, qkv_width, false, me, of);
            meeting.wait(of);
            // By heads, in turn, and by strips of rows: the keys of neighbouring rows lie in the same lines of the cache.
            const int strips = (count + STRIP - 1) / STRIP;
            for (int unit = me; unit < strips * (heads + kv); unit += of) {
                const int first = unit / (heads + kv) * STRIP, h = unit % (heads + kv);
                for (int r = first; r < std::min(first + STRIP, count); r++) {
                    float *q = qkv + static_cast<int64_t>(r) * qkv_width;
                    const float *c = cosine + static_cast<int64_t>(r) * dim / 2, *d = sine + static_cast<int64_t>(r) * dim / 2;
                    turn(q, h, c, d, *s, layer);
                    if (h >= heads) write_key(q, h - heads, n, rows[r], *s);
                }
            }
            if (keys_only && n == s->layers - 1) break;
            meeting.wait(of);
            // Key head by key head, so that a thread reads the keys and values of a conversation once for many queries.
            const Share queries(static_cast<int64_t>(heads) * count, me, of);
            Query query[QUERIES];
            for (int at = queries.begin, ready = 0; at < queries.end; at++) {
                const int h = at / (shared * count), r = at / shared % count, q = h * shared + at % shared;
                query[ready] = {qkv + static_cast<int64_t>(r) * qkv_width + q * dim, scores + ready * stride,
                                seen + static_cast<int64_t>(r) * q_width + q * dim, static_cast<int>(rows[r].position) + 1};
                const int next = at + 1, next_r = next / shared % count;
                if (++ready == QUERIES || next == queries.end || next / (shared * count) != h || rows[next_r].keys != rows[r].keys) {
                    const int64_t head = (static_cast<int64_t>(n) * kv + h) * rows[r].capacity * dim;
                    attend_all(query, ready, rows[r].keys + head, rows[r].values + head, dim, s->scale);
                    ready = 0;
                }
            }
            meeting.wait(of);
            attended.round_all(seen, q_width, place);
            meeting.wait(of);
            multiply(layer.out, attended.panels, count, x, hidden, true, me, of);
            meeting.wait(of);
            narrow.round_normed(x, layer.mlp_norm, s->epsilon, place);
            meeting.wait(of);
            multiply_gated(layer.gate_up, narrow.panels, count, gated, s->mlp, me, of);
            meeting.wait(of);
            wide.round_all(gated, s->mlp, place);
            meeting.wait(of);
            multiply(layer.down, wide.panels, count, x, hidden, true, me, of);
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
    acts.round_normed(x, norm, epsilon, Place{0, 1});
#pragma omp parallel num_threads(threads)
    {
        const Place place;
        multiply(*w, acts.panels, count, out, w->outputs, false, place.thread, place.threads);
    }
}

// The index of the largest of x[0..n), n a multiple of 16, and its share of the sum of e^x; a share that is no number
// where x holds one that is none.
int32_t gl_choice(const float *x, int32_t n, float *share) {
    Floats most = load(x);
    for (int i = WIDTH; i < n; i += WIDTH) most = larger(most, load(x + i));
    float largest = most[0];
    for (int l = 1; l < WIDTH; l++) largest = std::max(largest, most[l]);
    Floats even{}, odd{}, plain{};
    int32_t index = -1;
    for (int i = 0; i < n; i += 2 * WIDTH) {
        const Floats a = load(x + i), b = load(x + i + WIDTH);
        even += exponential(a - largest);
        odd += exponential(b - largest);
        plain += a + b;  // comparing and clamping would hide what is no number
    }
    for (int i = 0; i < n && index < 0; i++)
        if (x[i] == largest) index = i;
    const float sum = sum_of(plain);
    *share = std::isfinite(sum) && index >= 0 ? 1.0f / sum_of(even + odd) : NAN;
    return std::max(index, 0);
}

// out [count]: of token ids[j] its share of the sum of e^x in row rows[j] of x [.., n]; rows that follow each other and are
// the same are read once. No number where the row holds one that is none or +inf, or nothing above -inf.
void gl_raw_probs(const float *x, int32_t n, int32_t count, const int32_t *rows, const int32_t *ids, double *out) {
    Softmax found;
    for (int j = 0; j < count; j++) {
        const float *row = x + static_cast<int64_t>(rows[j]) * n;
        if (j == 0 || rows[j] != rows[j - 1]) found = softmax(row, n);
        out[j] = found.share(row[ids[j]]);
    }
}

// The distribution that x [n] becomes at this temperature, above 0, behind these filters, to out [n]; top_k 0, top_p 1 and min_p 0
// are off. Returns 0, or 1 where x holds what is no number, or nothing to draw from.
int32_t gl_distribution(const float *x, int32_t n, float temperature, int32_t top_k, double top_p, float min_p, float *out) {
    const float best = largest_of(x, n);
    if (!std::isfinite(best)) return 1;
    for (int i = 0; i < n; i++) out[i] = (x[i] - best) / temperature;
    if (top_k > 0 && top_k < n) keep_top_k(out, n, top_k);
    divide(out, n, static_cast<float>(exponentials(out, n)));
    if (top_p < 1.0) keep_top_p(out, n, top_p);
    if (min_p > 0.0f) {
        const float least = min_p * largest_of(out, n);
        for (int i = 0; i < n; i++) out[i] = out[i] >= least ? out[i] : 0.0f;
    }
    if (top_p < 1.0 || min_p > 0.0f) divide(out, n, static_cast<float>(total_of(out, n)));
    return 0;
}

// The index at which the running sum of p [n] passes u times their sum; never one where p is 0, -1 if all are.
int32_t gl_draw(const float *p, int32_t n, double u) {
    const double total = total_of(p, n);
    double before = 0.0;
    for (int i = 0; i < n; i += RUN) {
        const int end = std::min<int>(i + RUN, n);
        const double behind = before + run_sum(p + i, end - i);
        if (behind > u * total) {
            double running = before;
            int32_t last = -1;
            for (int j = i; j < end; j++) {
                if (p[j] > 0.0f) last = j;
                running += p[j];
                if (p[j] > 0.0f && running > u * total) return j;
            }
            if (last >= 0) return last;  // the run's sum was rounded otherwise
        }
        before = behind;
    }
    for (int i = n - 1; i >= 0; i--)
        if (p[i] > 0.0f) return i;
    return -1;
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
    acts.round_all(x, w->inputs, Place{0, 1});
#pragma omp parallel num_threads(threads)
    {
        const Place place;
        multiply(*w, acts.panels, count, out, w->outputs, false, place.thread, place.threads);
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
