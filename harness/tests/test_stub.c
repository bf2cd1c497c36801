#include "suites.h"
Suite *suite_report(void) { return suite_create("report"); }
Suite *suite_history(void) { return suite_create("history"); }
