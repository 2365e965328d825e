/* security.c: names of security protocols. */
#include "wire/security.h"

static const char *const names[SECURITY_COUNT] = {
    [SECURITY_PLAINTEXT] = "PLAINTEXT",
    [SECURITY_SSL] = "SSL",
    [SECURITY_SASL_PLAINTEXT] = "SASL_PLAINTEXT",
    [SECURITY_SASL_SSL] = "SASL_SSL",
};

const char *security_protocol_name(int16_t protocol)
{
    return protocol >= 0 && protocol < SECURITY_COUNT ? names[protocol] : NULL;
}

bool security_protocol_parse(struct str name, int16_t *out)
{
    for (int16_t i = 0; i < SECURITY_COUNT; i++) {
        if (!str_is(name, names[i])) continue;
        *out = i;
        return true;
    }
    return false;
}
