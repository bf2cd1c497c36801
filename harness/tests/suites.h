/* suites.h - every Check suite of the project; tests/main.c runs those that DP_SUITES lists, in this order. */
#ifndef DP_TESTS_SUITES_H
#define DP_TESTS_SUITES_H

#include <check.h>

#define DP_SUITES(X)                                                                                                   \
    X(sanitizer)                                                                                                       \
    X(dtype)                                                                                                           \
    X(mathfn)                                                                                                          \
    X(tanh)                                                                                                            \
    X(canon)                                                                                                           \
    X(ops)                                                                                                             \
    X(processors)                                                                                                      \
    X(config)                                                                                                          \
    X(safetensors)                                                                                                     \
    X(quant)                                                                                                           \
    X(precision)                                                                                                       \
    X(precision_forward)                                                                                               \
    X(weights)                                                                                                         \
    X(rope)                                                                                                            \
    X(draft)                                                                                                           \
    X(conv)                                                                                                            \
    X(logits)                                                                                                          \
    X(head)                                                                                                            \
    X(propose)                                                                                                         \
    X(kv)                                                                                                              \
    X(markov)                                                                                                          \
    X(confidence)                                                                                                      \
    X(window)                                                                                                          \
    X(verify)                                                                                                          \
    X(vectors)                                                                                                         \
    X(traps)                                                                                                           \
    X(sha256)                                                                                                          \
    X(atomic_file)                                                                                                     \
    X(synth)                                                                                                           \
    X(cases)                                                                                                           \
    X(store)                                                                                                           \
    X(resolve)                                                                                                         \
    X(manifest)                                                                                                        \
    X(geometry)                                                                                                        \
    X(compare)                                                                                                         \
    X(bounds)                                                                                                          \
    X(soak)                                                                                                            \
    X(sensitivity)                                                                                                     \
    X(coverage)                                                                                                        \
    X(isolated)                                                                                                        \
    X(growth)                                                                                                          \
    X(ladder)                                                                                                          \
    X(embedding)                                                                                                       \
    X(check)                                                                                                           \
    X(result)                                                                                                          \
    X(report)                                                                                                          \
    X(stored_results)                                                                                                  \
    X(junit)                                                                                                           \
    X(destinations)                                                                                                    \
    X(progress)                                                                                                        \
    X(printable)                                                                                                       \
    X(history)                                                                                                         \
    X(page_style)                                                                                                      \
    X(pages)                                                                                                           \
    X(summary)                                                                                                         \
    X(kept_plots)                                                                                                      \
    X(plots)                                                                                                           \
    X(postmortem)                                                                                                      \
    X(bisect)                                                                                                          \
    X(recording)                                                                                                       \
    X(identity)                                                                                                        \
    X(process)                                                                                                         \
    X(bench)                                                                                                           \
    X(gpu_record)                                                                                                      \
    X(cli)                                                                                                             \
    X(api)                                                                                                             \
    X(example)                                                                                                         \
    X(recipes)                                                                                                         \
    X(cuda)

#define DP_DECLARE_SUITE(name) Suite *suite_##name(void);
DP_SUITES(DP_DECLARE_SUITE)
#undef DP_DECLARE_SUITE

#endif
