/* escape.h - text of any origin (paths, messages, compiler flags) made harmless in what a report is written in. */
#ifndef DP_ESCAPE_H
#define DP_ESCAPE_H

#include <stdio.h>

/* XML text and attribute values: & < > " ' and line ends as references; what XML 1.0 cannot hold, and bytes that are no
 * UTF-8, become U+FFFD. */
void dp_escape_xml(FILE *to, const char *text);

/* Markdown text of one line, in a table cell too: characters that would mark something up are taken literally, line
 * ends become spaces, an @ notifies nobody. */
void dp_escape_markdown(FILE *to, const char *text);

/* A block of code that no backtick inside can end. */
void dp_fence_markdown(FILE *to, const char *text);

/* Values of GitHub's workflow commands: % and line ends; in a property (title, file) also : and , */
void dp_escape_github(FILE *to, const char *text);
void dp_escape_github_property(FILE *to, const char *text);

#endif
