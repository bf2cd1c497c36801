/*
 * result_file.h - reads a result file (reports/RESULT.md) back into what the run itself held, so that everything that
 * shows a result works on a live run and on an old file alike.
 *
 * A file that is not whole, of another version, or that contradicts itself (counts that do not fit its arrays, a
 * verdict that its stages do not support) is refused.
 */
#ifndef DP_RESULT_FILE_H
#define DP_RESULT_FILE_H

#include "base/json_read.h"
#include "check/run_check.h"

typedef struct dp_result_case {
    const char *name, *command; /* borrowed from the document, like every string here */
    dp_check_options options;   /* checkpoint, oracle, precision, filter */
    dp_result result;           /* as after dp_check, of its facts the digests; result.options is `options` above */
    bool accepted;              /* false: family, rows and geometry are not known */
    const cJSON *object;        /* the case as JSON, for names and values that are compared or shown as they are */
    const cJSON *checkpoint, *oracle; /* of it, to show: paths, digests, geometry and provenance */
} dp_result_case;

typedef struct dp_result_file {
    const char *path; /* borrowed from the caller */
    cJSON *document;  /* owned unless it was parsed from the caller's */
    bool owned;
    const char *tool, *command, *when;
    const char *filter; /* NULL: none */
    dp_verdict verdict;
    double seconds;
    const cJSON *environment; /* names and values to show and compare */
    dp_result_case *item;     /* owned */
    int count;
} dp_result_file;

/* Codes: those of dp_text_file_read, "result.recording" (an HDF5 file), "result.json" (not JSON, or not all of it),
 * "result.schema" (not a result file), "result.version", "result.key" (a key missing or of another type),
 * "result.counts" (contradictions). Release *out whatever the outcome. */
dflash_status dp_result_read(const char *path, dp_result_file *out, dflash_error *err);
/* The same of a document in memory, which must outlive *out. `path` is for messages. */
dflash_status dp_result_parse(cJSON *document, const char *path, dp_result_file *out, dflash_error *err);
void dp_result_file_release(dp_result_file *file);

/* A fact of the environment as text: strings as they are, booleans as "yes" and "no", null and absence as "none". */
const char *dp_result_fact(const dp_result_file *file, const char *name);

/* Parts of the reader (result_stage.c, result_plots.c). */
void dp_read_stage(dp_json_reader *reader, const cJSON *object, dp_stage_result *stage, dp_stage_plot *plot);
void dp_read_variant(dp_json_reader *reader, const cJSON *object, dp_variant_result *variant);
void dp_read_growth(dp_json_reader *reader, const cJSON *object, dp_layer_growth *layer);
void dp_read_plots(dp_json_reader *reader, const cJSON *object, dp_plot_data *data);

#endif
