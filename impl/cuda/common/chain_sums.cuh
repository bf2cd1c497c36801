/* chain_sums.cuh - the tree of canon.h over chunks that come one after another, for N chains of a thread at once. */
#ifndef DF_CUDA_CHAIN_SUMS_CUH
#define DF_CUDA_CHAIN_SUMS_CUH

/* The unfinished nodes: a binary counter of DEPTH digits. Indexed by depth, so they lie in local memory. */
template <int N, int DEPTH> struct dc_chain_sums {
    float slot[DEPTH][N];
    int depth;

    __device__ void push(unsigned chunk, const float (&sum)[N]) {
        float total[N];
#pragma unroll
        for (int i = 0; i < N; i++) total[i] = sum[i] + 0.0f;
        for (; (chunk & 1u) != 0; chunk >>= 1) {
            depth--;
#pragma unroll
            for (int i = 0; i < N; i++) total[i] = slot[depth][i] + total[i];
        }
#pragma unroll
        for (int i = 0; i < N; i++) slot[depth][i] = total[i];
        depth++;
    }

    /* The root, of all chains. */
    __device__ void finish(float (&sum)[N]) const {
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] = slot[depth - 1][i];
        for (int d = depth - 2; d >= 0; d--)
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] = slot[d][i] + sum[i];
    }
};

#endif
