"""Requests that schemathesis makes of /openapi.json: nothing is a server error, and each answer is as the document says."""

import schemathesis
from conftest import KEY
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

HEADERS = {"Authorization": f"Bearer {KEY}"}
# The document says less than is checked, and unknown fields are ignored: what it allows may be rejected, and the other way round. Keys are tested elsewhere.
CHECKS = schemathesis.checks
EXCLUDED = [CHECKS.positive_data_acceptance, CHECKS.negative_data_rejection, CHECKS.ignored_auth]


def shorten(body: dict) -> None:
    """An answer of thousands of tokens shows no more than one of a few, and a model that is not there always the same."""
    body.pop("model", None)
    for name, most in (("max_tokens", 4), ("max_completion_tokens", 4), ("max_output_tokens", 4), ("n", 2)):
        if isinstance(body.get(name), int) and body[name] > most:
            body[name] = most


def test_requests(address):
    document = schemathesis.openapi.from_url(f"{address}/openapi.json", headers=HEADERS)
    counts = {}
    for operation in document.get_all_operations():
        operation = operation.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
            def run(case):
                if isinstance(case.body, dict):
                    shorten(case.body)
                response = case.call(headers=HEADERS)
                counts[response.status_code] = counts.get(response.status_code, 0) + 1
                case.validate_response(response, excluded_checks=EXCLUDED)

            if operation.body or mode is GenerationMode.POSITIVE:
                run()
    print("responses by status:", dict(sorted(counts.items())))
    assert counts.get(200, 0) > 100 and counts.get(400, 0) > 100
