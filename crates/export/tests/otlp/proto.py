"""Parses lines of stdin as ExportTraceServiceRequest, with unknown fields refused, and prints the number of spans."""

import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def with_ids_as_bytes(request):
    """OTLP writes ids as hex, unlike other JSON forms of protocol buffers, which have base64."""
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for holder in [span, *span.get("links", [])]:
                    for key, size in (("traceId", 16), ("spanId", 8), ("parentSpanId", 8)):
                        if key in holder:
                            raw = bytes.fromhex(holder[key])
                            assert len(raw) == size and any(raw), holder[key]
                            holder[key] = base64.b64encode(raw).decode()
    return request


spans = 0
for line in sys.stdin:
    try:
        text = json.dumps(with_ids_as_bytes(json.loads(line)))
        request = json_format.Parse(text, ExportTraceServiceRequest(), ignore_unknown_fields=False)
    except Exception as error:
        print(f"{error}"[:500].replace("\n", " "))
        continue
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            spans += len(scope.spans)
            for span in scope.spans:
                assert 0 < span.end_time_unix_nano >= span.start_time_unix_nano or not span.end_time_unix_nano
print(json.dumps({"spans": spans}))
