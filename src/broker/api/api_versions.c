/* ApiVersions (key 18, KIP-35, KIP-511): what this broker serves. */
#include "base/mem.h"
#include "broker/api/handlers.h"
#include "broker/api_table.h"
#include "broker/conn.h"
#include "broker/request.h"
#include "wire/gen/api_versions.h"

enum { SOFTWARE_NAME_MAX = 128 };

/* KIP-511: letters, digits, '-' and '.', beginning and ending with a letter or digit. */
static bool software_text_ok(struct str s)
{
    if (str_is_null(s) || s.size == 0 || s.size > SOFTWARE_NAME_MAX) return false;
    for (size_t i = 0; i < s.size; i++) {
        char c = s.data[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool inner = (c == '-' || c == '.') && i > 0 && i + 1 < s.size;
        if (!alnum && !inner) return false;
    }
    return true;
}

static void remember(char **slot, struct str text)
{
    mem_free(*slot);
    *slot = mem_strndup(text.data, text.size);
}

enum step api_versions_handle(struct request *rq)
{
    const struct api_versions_request *in = rq->in;
    struct api_versions_response *out = rq->out;
    if (rq->version >= 3) {
        if (!software_text_ok(in->client_software_name) || !software_text_ok(in->client_software_version)) {
            out->error_code = KERR_INVALID_REQUEST;
            return DONE;
        }
        remember(&rq->conn->software_name, in->client_software_name);
        remember(&rq->conn->software_version, in->client_software_version);
    }
    api_table_list(rq, out);
    return DONE;
}
