/*
 * bulk.cuh - bulk copies from global to shared memory and the barriers that count their bytes (sm_90 and later).
 */
#ifndef DF_CUDA_BULK_CUH
#define DF_CUDA_BULK_CUH

#include "cuda/persistent/device.cuh"

DC_DEVICE unsigned dc_shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

DC_DEVICE void dc_barrier_init(unsigned long long *b, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(dc_shared(b)), "r"(count) : "memory");
}
DC_DEVICE void dc_barrier_arrive(unsigned long long *b) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(dc_shared(b)) : "memory");
}
DC_DEVICE void dc_barrier_expect(unsigned long long *b, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(dc_shared(b)), "r"(bytes) : "memory");
}
DC_DEVICE void dc_barrier_wait(unsigned long long *b, unsigned parity) {
    asm volatile("{\n\t.reg .pred done;\n\t"
                 "again_%=:\n\t"
                 "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
                 "@!done bra again_%=;\n\t}" ::"r"(dc_shared(b)),
                 "r"(parity)
                 : "memory");
}
DC_DEVICE void dc_bulk(void *shared, const void *global, unsigned bytes, unsigned long long *b,
                       unsigned long long hint) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(dc_shared(shared)),
                 "l"(global), "r"(bytes), "r"(dc_shared(b)), "l"(hint)
                 : "memory");
}
DC_DEVICE void dc_bulk_plain(void *shared, const void *global, unsigned bytes, unsigned long long *b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     dc_shared(shared)),
                 "l"(global), "r"(bytes), "r"(dc_shared(b))
                 : "memory");
}
/* Of a thread that has written shared memory which a bulk copy will overwrite. */
DC_DEVICE void dc_before_bulk() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* Of one that has written memory which bulk copies will read, and of one that will have it read. */
DC_DEVICE void dc_before_bulk_reads() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
DC_DEVICE unsigned long long dc_evict_first() {
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
DC_DEVICE unsigned long long dc_evict_last() {
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

#endif
