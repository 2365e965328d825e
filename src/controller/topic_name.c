/* topic_name.c: Kafka's rules for topic names. */
#include "controller/topic_name.h"

static bool has_only_legal_characters(struct str name)
{
    for (size_t i = 0; i < name.size; i++) {
        char ch = name.data[i];
        bool legal = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '.' ||
                     ch == '_' || ch == '-';
        if (!legal) return false;
    }
    return true;
}

bool topic_name_check(struct str name, struct arena *a, struct str *message)
{
    if (str_is_null(name) || name.size == 0)
        *message = STR("Topic name is invalid: the empty string is not allowed");
    else if (str_is(name, "."))
        *message = STR("Topic name is invalid: '.' is not allowed");
    else if (str_is(name, ".."))
        *message = STR("Topic name is invalid: '..' is not allowed");
    else if (name.size > TOPIC_NAME_MAX)
        *message =
            arena_printf(a, "Topic name is invalid: the length of '%.*s' is longer than the max allowed length %d",
                         STR_ARG(name), TOPIC_NAME_MAX);
    else if (!has_only_legal_characters(name))
        *message = arena_printf(a,
                                "Topic name is invalid: '%.*s' contains one or more characters other than ASCII"
                                " alphanumerics, '.', '_' and '-'",
                                STR_ARG(name));
    else
        return true;
    return false;
}

struct str topic_name_unify(struct str name, struct arena *a)
{
    char *copy = arena_alloc(a, name.size + 1);
    for (size_t i = 0; i < name.size; i++) copy[i] = name.data[i] == '.' ? '_' : name.data[i];
    return (struct str){copy, name.size};
}
