/* topic_name.c: Kafka's rules for topic names.  They become directory names, hence no "." and ".." and room for the
 * partition's number within the 255 bytes of a file name. */
#include "wire/topic_name.h"

static bool legal(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

const char *topic_name_fault(struct str name)
{
    if (str_is_null(name)) return "is null";
    if (name.size == 0) return "is empty";
    if (str_is(name, ".") || str_is(name, "..")) return "is '.' or '..'";
    if (name.size > TOPIC_NAME_MAX) return "is longer than 249 characters";
    for (size_t i = 0; i < name.size; i++)
        if (!legal(name.data[i])) return "has characters other than ASCII letters, digits, '.', '_' and '-'";
    return NULL;
}
