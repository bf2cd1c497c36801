/* pack.cu - see pack.cuh. */
#include "cuda/persistent/pack.cuh"

#include "cuda/persistent/product_exact.cuh"
#include "cuda/persistent/product_fast.cuh"

extern "C" {
#include "weights/quant.h"
}

namespace {

struct source {
    const unsigned char *data;
    size_t stride;
    int dtype, out, in, segments;
};

/* 16-bit value k of row o, zero outside the matrix. */
__device__ unsigned half_at(const source &s, int o, int k) {
    if (o >= s.out || k >= s.in) return 0;
    return reinterpret_cast<const unsigned short *>(s.data + (size_t)o * s.stride)[k];
}

/* Byte i of the values of block b (the format's 32 values), and its scale. */
__device__ unsigned byte_at(const source &s, int o, int b, int i) {
    if (o >= s.out || b * 32 >= s.in) return s.dtype == DF_Q8_0 ? 0 : 0x88;
    return s.data[(size_t)o * s.stride + (size_t)b * (s.dtype == DF_Q8_0 ? DF_Q8_0_BYTES : DF_Q4_0_BYTES) +
                  DF_SCALE_BYTES + i];
}
/* The four bits of value k of a row of q4_0. */
__device__ unsigned nibble_at(const source &s, int o, int k) {
    return byte_at(s, o, k / 32, k % 16) >> (k % 32 / 16 * 4) & 15u;
}
__device__ unsigned short scale_at(const source &s, int o, int b) {
    if (o >= s.out || b * 32 >= s.in) return 0;
    return *reinterpret_cast<const unsigned short *>(s.data + (size_t)o * s.stride +
                                                     (size_t)b * (s.dtype == DF_Q8_0 ? DF_Q8_0_BYTES : DF_Q4_0_BYTES));
}

/* A piece is four channels of one output: 16 bytes of f32, 8, 4; q4_0: eight channels in 4 bytes. */
__global__ void pack_exact(source s, size_t pieces, void *to) {
    const int each = s.dtype == DF_Q4_0 ? 8 : 4, per_segment = DC_TILE * (DC_ITEM_CHANNELS / each);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < pieces; i += (size_t)gridDim.x * blockDim.x) {
        const size_t at = i / per_segment;
        const int in_tile = (int)(i % DC_TILE), segment = (int)(at % s.segments), tile = (int)(at / s.segments);
        const int o = tile * DC_TILE + in_tile,
                  k = segment * DC_ITEM_CHANNELS + (int)(i % per_segment) / DC_TILE * each;
        if (s.dtype == DF_F32) {
            uint4 v = make_uint4(0, 0, 0, 0);
            const unsigned *from = reinterpret_cast<const unsigned *>(s.data + (size_t)o * s.stride);
            if (o < s.out) {
                if (k < s.in) v.x = from[k];
                if (k + 1 < s.in) v.y = from[k + 1];
                if (k + 2 < s.in) v.z = from[k + 2];
                if (k + 3 < s.in) v.w = from[k + 3];
            }
            static_cast<uint4 *>(to)[i] = v;
        } else if (s.dtype == DF_BF16 || s.dtype == DF_F16) {
            static_cast<uint2 *>(to)[i] = make_uint2(half_at(s, o, k) | half_at(s, o, k + 1) << 16,
                                                     half_at(s, o, k + 2) | half_at(s, o, k + 3) << 16);
        } else {
            unsigned word = 0;
            for (int b = 0; b < 4; b++)
                word |= s.dtype == DF_Q8_0 ? byte_at(s, o, k / 32, k % 32 + b) << 8 * b
                                           : (nibble_at(s, o, k + b) | nibble_at(s, o, k + b + 4) << 4) << 8 * b;
            static_cast<unsigned *>(to)[i] = word;
        }
    }
}

__global__ void pack_exact_scales(source s, size_t count, unsigned short *to) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        const int in_tile = (int)(i % DC_TILE), block = (int)(i / DC_TILE % 2);
        const size_t at = i / DC_TILE / 2;
        const int segment = (int)(at % s.segments), tile = (int)(at / s.segments);
        to[i] = scale_at(s, tile * DC_TILE + in_tile, segment * 2 + block);
    }
}

__global__ void pack_fast_bf16(source s, size_t pieces, uint4 *to) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < pieces; i += (size_t)gridDim.x * blockDim.x) {
        const size_t whole = (size_t)s.segments * (DC_TILE * DC_ITEM_CHANNELS / 8);
        const int tile = (int)(i / whole), rows = dc_tile_rows(s.out, tile), stage = rows * DC_ITEM_CHANNELS / 8;
        const int rest = (int)(i % whole), segment = rest / stage, piece = rest % stage;
        const int lane = piece % 32, step = piece / 32 % 4, m = piece / 128; /* 16 outputs each */
        const int o = tile * DC_TILE + m * 16 + lane / 4, k = segment * DC_ITEM_CHANNELS + step * 16 + lane % 4 * 2;
        to[i] = make_uint4(half_at(s, o, k) | half_at(s, o, k + 1) << 16,
                           half_at(s, o + 8, k) | half_at(s, o + 8, k + 1) << 16,
                           half_at(s, o, k + 8) | half_at(s, o, k + 9) << 16,
                           half_at(s, o + 8, k + 8) | half_at(s, o + 8, k + 9) << 16);
    }
}

/* The bytes of two channels k, k + 1 for outputs o and o + 8, interleaved as product_fast.cuh takes them apart. */
__device__ unsigned quad_at(const source &s, int o, int k) {
    return byte_at(s, o, k / 32, k % 32) | byte_at(s, o + 8, k / 32, k % 32) << 8 |
           byte_at(s, o, k / 32, k % 32 + 1) << 16 | byte_at(s, o + 8, k / 32, k % 32 + 1) << 24;
}

__global__ void pack_fast_q8(source s, int tiles, unsigned char *to) {
    const size_t stages = (size_t)tiles * s.segments;
    for (size_t at = blockIdx.x; at < stages; at += gridDim.x) {
        const int tile = (int)(at / s.segments), segment = (int)(at % s.segments), rows = dc_tile_rows(s.out, tile);
        unsigned char *stage = to + (size_t)tile * s.segments * dc_stage_bytes(DF_Q8_0, DC_TILE) +
                               (size_t)segment * dc_stage_bytes(DF_Q8_0, rows);
        for (int piece = (int)threadIdx.x; piece < rows * DC_ITEM_CHANNELS / 16; piece += (int)blockDim.x) {
            const int lane = piece % 32, block = piece / 32 % 2, m = piece / 64;
            const int o = tile * DC_TILE + m * 16 + lane / 4,
                      k = segment * DC_ITEM_CHANNELS + block * 32 + lane % 4 * 2;
            reinterpret_cast<uint4 *>(stage)[piece] =
                make_uint4(quad_at(s, o, k), quad_at(s, o, k + 8), quad_at(s, o, k + 16), quad_at(s, o, k + 24));
        }
        unsigned short *scale = reinterpret_cast<unsigned short *>(stage + rows * DC_ITEM_CHANNELS);
        for (int i = (int)threadIdx.x; i < rows * 2; i += (int)blockDim.x)
            scale[i] = scale_at(s, tile * DC_TILE + i / 32 * 16 + i % 16, segment * 2 + i / 16 % 2);
    }
}

} /* namespace */

dc_packing dc_packing_of(const df_matrix *w, bool fast) {
    dc_packing p = {};
    p.tiles = (int)((w->out + DC_TILE - 1) / DC_TILE);
    p.segments = (int)((w->in + DC_ITEM_CHANNELS - 1) / DC_ITEM_CHANNELS);
    if (fast) {
        const size_t rows = ((size_t)w->out + 31) / 32 * 32;
        p.bytes = rows * (size_t)p.segments * (w->dtype == DF_Q8_0 ? DC_ITEM_CHANNELS + 4 : 2 * DC_ITEM_CHANNELS);
        return p;
    }
    const size_t values = (size_t)p.tiles * (size_t)p.segments * DC_TILE * DC_ITEM_CHANNELS;
    p.bytes = w->dtype == DF_F32    ? 4 * values
              : w->dtype == DF_Q8_0 ? values
              : w->dtype == DF_Q4_0 ? values / 2
                                    : 2 * values;
    if (df_dtype_is_block(w->dtype)) p.scale_bytes = values / 32 * 2;
    return p;
}

cudaError_t dc_pack_matrix(const df_matrix *w, bool fast, void *data, void *scale, cudaStream_t stream) {
    enum { BLOCKS = 1056, THREADS = 256 };
    const dc_packing p = dc_packing_of(w, fast);
    const source s = {static_cast<const unsigned char *>(w->data),
                      df_row_bytes(w->dtype, w->in),
                      w->dtype,
                      (int)w->out,
                      (int)w->in,
                      p.segments};
    if (fast && w->dtype == DF_Q8_0)
        pack_fast_q8<<<BLOCKS, THREADS, 0, stream>>>(s, p.tiles, static_cast<unsigned char *>(data));
    else if (fast)
        pack_fast_bf16<<<BLOCKS, THREADS, 0, stream>>>(s, p.bytes / 16, static_cast<uint4 *>(data));
    else
        pack_exact<<<BLOCKS, THREADS, 0, stream>>>(
            s, (size_t)p.tiles * (size_t)p.segments * DC_TILE * DC_ITEM_CHANNELS / (w->dtype == DF_Q4_0 ? 8 : 4), data);
    if (!fast && p.scale_bytes > 0)
        pack_exact_scales<<<BLOCKS, THREADS, 0, stream>>>(s, p.scale_bytes / 2, static_cast<unsigned short *>(scale));
    return cudaGetLastError();
}
