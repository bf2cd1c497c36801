/*
 * pool.h - a fixed set of threads that share numbered tasks.
 *
 * Tasks are handed out by a counter, so which thread runs which task varies; tasks must therefore write disjoint
 * outputs and read nothing that another writes.
 */
#ifndef DF_CPU_POOL_H
#define DF_CPU_POOL_H

#include "dflash.h"

typedef struct df_pool df_pool;

/* task in [0, tasks), worker in [0, threads): the worker indexes per-thread scratch. */
typedef void (*df_task_fn)(void *context, int task, int worker);

/* threads 0: as many as the process can keep busy (processors.h). */
dflash_status df_pool_create(int threads, df_pool **out, dflash_error *err);
void df_pool_destroy(df_pool *pool);
int df_pool_threads(const df_pool *pool);

/* Runs every task and returns when all are done. The caller's thread takes part as worker 0. */
void df_pool_run(df_pool *pool, df_task_fn fn, void *context, int tasks);

#endif
