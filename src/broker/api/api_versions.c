/* ApiVersions (key 18, KIP-35, KIP-511): what this broker serves. */
#include "broker/api/handlers.h"
#include "broker/api_table.h"
#include "wire/gen/api_versions.h"

/* KIP-511: letters, digits, '-' and '.', beginning and ending with a letter or digit. */
static bool software_text_ok(struct str s)
{
    if (str_is_null(s) || s.size == 0) return false;
    for (size_t i = 0; i < s.size; i++) {
        char c = s.data[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool inner = (c == '-' || c == '.') && i > 0 && i + 1 < s.size;
        if (!alnum && !inner) return false;
    }
    return true;
}

enum step api_versions_handle(struct request *rq)
{
    const struct api_versions_request *in = rq->in;
    struct api_versions_response *out = rq->out;
    bool named = rq->version >= 3;
    if (named && (!software_text_ok(in->client_software_name) || !software_text_ok(in->client_software_version))) {
        out->error_code = KERR_INVALID_REQUEST;
        return DONE;
    }
    api_table_list(rq, out);
    return DONE;
}
