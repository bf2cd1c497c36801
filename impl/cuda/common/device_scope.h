/*
 * device_scope.h - makes an engine's device the current one for a call, and gives the caller's back.
 *
 * Which device the runtime works on is a property of the calling thread, and the caller may use others, or engines on
 * several. So every entry of the backend (the table of operations, the memory's functions, opening, closing,
 * describing) passes through here, and nothing behind it sets a device.
 */
#ifndef DF_CUDA_DEVICE_SCOPE_H
#define DF_CUDA_DEVICE_SCOPE_H

#include "cuda/common/cuda_ops.h"

#include <tuple>

class df_cuda_scope {
  public:
    explicit df_cuda_scope(int device) : result(cudaGetDevice(&before)), switched(false) {
        if (result != cudaSuccess || before == device) return;
        result = cudaSetDevice(device);
        switched = result == cudaSuccess;
    }
    /* A device that cannot be given back (it has no memory for a context of ours) leaves this engine's current, which
     * is no failure of the call; nor may it be taken for one of the next launch. */
    ~df_cuda_scope() {
        if (switched && cudaSetDevice(before) != cudaSuccess) cudaGetLastError();
    }
    df_cuda_scope(const df_cuda_scope &) = delete;
    df_cuda_scope &operator=(const df_cuda_scope &) = delete;

    dflash_status check(dflash_error *err) const {
        return df_cuda_check(result, "making the engine's device current", err);
    }

  private:
    int before = 0;
    cudaError_t result;
    bool switched;
};

static inline const df_cuda *df_cuda_owner(const dflash_engine *engine) { return df_cuda_of(engine); }
static inline const df_cuda *df_cuda_owner(const void *owner) { return static_cast<const df_cuda *>(owner); }

/* df_cuda_guarded<f>::call is f, on the device of its first argument, an engine or a memory's owner; the last one is
 * where a failure is described. */
template <auto F, typename = decltype(F)> struct df_cuda_guarded;
template <auto F, typename Owner, typename... A> struct df_cuda_guarded<F, dflash_status (*)(Owner *, A...)> {
    static dflash_status call(Owner *owner, A... a) {
        const df_cuda_scope scope(df_cuda_owner(owner)->device);
        TRY(scope.check(std::get<sizeof...(A) - 1>(std::tie(a...))));
        return F(owner, a...);
    }
};

#endif
