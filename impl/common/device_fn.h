/* device_fn.h - the qualifier of functions whose one text serves the processor and the CUDA device. */
#ifndef DF_DEVICE_FN_H
#define DF_DEVICE_FN_H

#ifdef __CUDACC__
#define DF_FN static __host__ __device__ __forceinline__
#else
#define DF_FN static inline
#endif

#endif
