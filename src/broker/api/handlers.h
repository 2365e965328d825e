/* handlers.h: one handler an API, declared from the table's rows.  Thread: the connection's loop. */
#ifndef BROKER_API_HANDLERS_H
#define BROKER_API_HANDLERS_H

#include "broker/request.h"

#define API(key, name, min, max, announced) enum step name##_handle(struct request *rq);
#include "broker/api_rows.inc"
#undef API

#endif
